//! Azure Blob Storage, through the official SDK.
//!
//! Owns: how each call of the port is said in the service's words; checksums; one time-out per attempt.
//! Does not own: retries, which the SDK is told not to make either; tokens of Entra ID.
//! Crash: each request is atomic at the service; a request that was under way may still be acted on.
//!
//! In accounts with a hierarchical namespace a listing also names folders, as blobs without bytes.
//!
//! Source: "Blob service REST API" of the Azure Storage documentation. Every answer is mapped once, in `answers`.

use std::future::Future;
use std::num::NonZero;
use std::time::{Duration, SystemTime};

use async_trait::async_trait;
use azure_core::http::headers::{ETAG, Headers};
use azure_core::http::{
    ClientMethodOptions, ClientOptions, Context, Etag, RequestContent, RetryOptions, Url, UserAgentOptions,
    XmlFormat,
};
use azure_storage_blob::models::{
    BlobClientDownloadOptions, BlobClientGetPropertiesResultHeaders, BlobClientUploadOptions,
    BlobContainerClientListBlobsOptions, BlockBlobClientCommitBlockListOptions,
    BlockBlobClientStageBlockOptions, BlockLookupList, HttpRange,
};
use azure_storage_blob::{BlobClient, BlobContainerClient, BlobServiceClient, BlobServiceClientOptions};
use bytes::Bytes;
use futures::TryStreamExt;
use tracing::warn;

use super::{BlobStore, BlockList, Condition, Error, Page, Properties, Written, rules};
use crate::model::{BlobHeaders, BlobName, BlobRef, BlockContent, BlockId, Metadata};
use crate::plan::{self, Checksum};

mod answers;
mod authorize;
mod checksum;
mod hints;
mod transport;

use answers::{Answers, Call};
use authorize::Authorization;
use transport::{Payload, PayloadChecksum};

/// Containers of a storage account.
///
/// All calls go over one pool of connections. Dropping a call closes its connection; the service may have acted.
pub struct AzureStore {
    service: BlobServiceClient,
    answers: Answers,
    checksum: Checksum,
    timeout: Duration,
    page_size: Option<i32>,
}

impl AzureStore {
    /// A store for the account in `plan`. Nothing is sent yet.
    ///
    /// # Errors
    /// [`Error::Configuration`] when the endpoint or the credential can never work: not a URL of http or https, a key
    /// that is not base64, a credential over http to another host than this one
    /// without `allow_http`.
    pub fn new(plan: &plan::AzureStore) -> Result<AzureStore, Error> {
        let endpoint = check_endpoint(&plan.endpoint, plan.allow_http)?;
        let authorization = Authorization::new(&plan.account, &plan.credential)?;
        let answers = Answers::new(&plan.account, &plan.credential);
        let options = BlobServiceClientOptions {
            client_options: ClientOptions {
                retry: RetryOptions::none(),
                transport: Some(transport::build(authorization, plan.concurrency)?),
                user_agent: UserAgentOptions {
                    application_id: Some(concat!("blobfeed-", env!("CARGO_PKG_VERSION")).to_owned()),
                },
                ..ClientOptions::default()
            },
            ..BlobServiceClientOptions::default()
        };
        let service = BlobServiceClient::new(endpoint, None, Some(options))
            .map_err(|error| Error::Configuration { reason: answers.scrub(&error.to_string()) })?;
        Ok(AzureStore {
            service,
            answers,
            checksum: plan.checksum,
            timeout: plan.request_timeout,
            page_size: None,
        })
    }

    /// The same store with so many names on a page of a listing, at most 5,000.
    #[must_use]
    pub fn with_page_size(mut self, names: u16) -> AzureStore {
        self.page_size = Some(i32::from(names.clamp(1, 5_000)));
        self
    }

    fn blob(&self, blob: &BlobRef) -> BlobClient {
        self.service.blob_client(&blob.container, blob.name.as_str())
    }

    fn container(&self, container: &str) -> BlobContainerClient {
        self.service.blob_container_client(container)
    }

    /// Waits for the answer to one attempt, and maps it.
    async fn ask<T>(
        &self,
        call: &Call<'_>,
        request: impl Future<Output = azure_core::Result<T>>,
    ) -> Result<T, Error> {
        rules::container(call.container)?;
        // The SDK's futures are large and would make ours large too.
        match tokio::time::timeout(self.timeout, Box::pin(request)).await {
            Ok(Ok(answer)) => Ok(answer),
            Ok(Err(error)) => Err(self.answers.map(call, &error)),
            Err(_) => Err(call.no_answer(format!("no answer within {:?}", self.timeout))),
        }
    }

    async fn probe(&self, container: &str) -> Result<(), Error> {
        let call = Call::on_container("List Blobs", container);
        let client = self.container(container);
        let options = BlobContainerClientListBlobsOptions {
            maxresults: Some(1),
            ..BlobContainerClientListBlobsOptions::default()
        };
        self.ask(&call, async { client.list_blobs(Some(options))?.into_pages().try_next().await })
            .await
            .map(drop)
    }

    async fn create(&self, container: &str) -> Result<(), Error> {
        let call = Call::on_container("Create Container", container);
        let client = self.container(container);
        match self.ask(&call, client.create(None)).await {
            Ok(_) => Ok(()),
            Err(Error::AlreadyExists { .. }) => Ok(()),
            Err(error) => Err(error),
        }
    }
}

#[async_trait]
impl BlobStore for AzureStore {
    /// A SAS for one container may neither read the container's properties nor create it. Then a listing tells whether
    /// the container is there, and when that is denied too, this succeeds with a warning: the first write will tell.
    async fn ensure_container(&self, container: &str, create: bool) -> Result<(), Error> {
        let call = Call::on_container("Get Container Properties", container);
        let client = self.container(container);
        let denied = match self.ask(&call, client.get_properties(None)).await {
            Ok(_) => return Ok(()),
            Err(Error::ContainerNotFound { .. }) if create => return self.create(container).await,
            Err(error) if self.answers.may_lack_permission(&error) => error,
            Err(error) => return Err(error),
        };
        if create {
            match self.create(container).await {
                Err(error) if self.answers.may_lack_permission(&error) => {}
                other => return other,
            }
        }
        match self.probe(container).await {
            Err(error) if self.answers.may_lack_permission(&error) => {
                warn!(container, %denied, "cannot tell whether the container exists, the first write will");
                Ok(())
            }
            other => other,
        }
    }

    async fn stage_block(
        &self,
        blob: &BlobRef,
        id: &BlockId,
        content: &BlockContent,
    ) -> Result<Written, Error> {
        rules::block(blob, content)?;
        let call = Call::on_blob("Put Block", blob, &Condition::None);
        let sum = checksum::of_content(self.checksum, content).await;
        let options = BlockBlobClientStageBlockOptions {
            transactional_content_crc64: sum.crc64(),
            transactional_content_md5: sum.md5(),
            method_options: ClientMethodOptions {
                context: Context::new().with_value(Payload(content.clone())),
            },
            ..BlockBlobClientStageBlockOptions::default()
        };
        let client = self.blob(blob).block_blob_client();
        // The bytes travel in the context: the SDK's own streams copy them piece by piece.
        let none = RequestContent::from(Vec::new());
        let request = client.stage_block(id.as_str().as_bytes(), content.len() as u64, none, Some(options));
        let answer = self.ask(&call, request).await?;
        Ok(Written { etag: String::new(), date: date(&call, answer.headers())? })
    }

    async fn commit_block_list(&self, blob: &BlobRef, list: &BlockList) -> Result<Written, Error> {
        rules::block_list(blob, list)?;
        let call = Call::on_blob("Put Block List", blob, &list.condition);
        let ids = list.blocks.iter().map(|id| id.as_str().as_bytes().to_vec()).collect();
        let lookup = BlockLookupList { uncommitted: Some(ids), ..BlockLookupList::default() };
        let body: RequestContent<BlockLookupList, XmlFormat> =
            lookup.try_into().map_err(|error| self.answers.map(&call, &error))?;
        let sum = match body.body() {
            azure_core::http::Body::Bytes(xml) => {
                checksum::of_content(self.checksum, &BlockContent::new(vec![xml.clone()])).await
            }
            azure_core::http::Body::SeekableStream(_) => checksum::Sum::None,
        };
        let (if_match, if_none_match) = conditions(&list.condition);
        let options = BlockBlobClientCommitBlockListOptions {
            if_match,
            if_none_match,
            blob_content_type: content_type(&list.headers),
            blob_content_encoding: list.headers.content_encoding.clone(),
            metadata: Some(list.metadata.clone().into_iter().collect()),
            transactional_content_crc64: sum.crc64(),
            transactional_content_md5: sum.md5(),
            ..BlockBlobClientCommitBlockListOptions::default()
        };
        let client = self.blob(blob).block_blob_client();
        let answer = self.ask(&call, client.commit_block_list(body, Some(options))).await?;
        written(&call, answer.headers())
    }

    async fn put(
        &self,
        blob: &BlobRef,
        content: Bytes,
        headers: &BlobHeaders,
        metadata: &Metadata,
        condition: &Condition,
    ) -> Result<Written, Error> {
        rules::metadata("Put Blob", blob, metadata)?;
        let call = Call::on_blob("Put Blob", blob, condition);
        let (if_match, if_none_match) = conditions(condition);
        let payload = BlockContent::new(vec![content.clone()]);
        let sum = checksum::of_content(self.checksum, &payload).await;
        let options = BlobClientUploadOptions {
            if_match,
            if_none_match,
            blob_content_type: content_type(headers),
            blob_content_encoding: headers.content_encoding.clone(),
            metadata: Some(metadata.clone().into_iter().collect()),
            // One request, whatever the length: parts would be staged and committed behind our back.
            partition_size: NonZero::new(u64::MAX),
            method_options: ClientMethodOptions { context: Context::new().with_value(PayloadChecksum(sum)) },
            ..BlobClientUploadOptions::default()
        };
        let client = self.blob(blob);
        let answer = self.ask(&call, client.upload(content.into(), Some(options))).await?;
        written(&call, answer.raw_response.headers())
    }

    async fn properties(&self, blob: &BlobRef) -> Result<Option<Properties>, Error> {
        let call = Call::on_blob("Get Blob Properties", blob, &Condition::None);
        let client = self.blob(blob);
        let Some(answer) = unless_absent(self.ask(&call, client.get_properties(None)).await)? else {
            return Ok(None);
        };
        let unreadable = |error: azure_core::Error| call.no_answer(self.answers.scrub(&error.to_string()));
        let headers = BlobHeaders {
            content_type: answer.content_type().map_err(unreadable)?.unwrap_or_default(),
            content_encoding: answer.content_encoding().map_err(unreadable)?.filter(|text| !text.is_empty()),
        };
        let metadata = answer.metadata().map_err(unreadable)?;
        let len = answer.content_length().map_err(unreadable)?;
        Ok(Some(Properties {
            etag: etag(&call, answer.headers())?,
            len: len.ok_or_else(|| call.no_answer("the answer has no Content-Length"))?,
            headers,
            metadata: metadata.into_iter().map(|(name, value)| (name.to_ascii_lowercase(), value)).collect(),
            date: date(&call, answer.headers())?,
        }))
    }

    async fn read(&self, blob: &BlobRef, from: u64, max: u64) -> Result<Option<Bytes>, Error> {
        // A range of nothing cannot be asked for.
        if max == 0 {
            return Ok(self.properties(blob).await?.map(|_| Bytes::new()));
        }
        let call = Call::on_blob("Get Blob", blob, &Condition::None);
        let len = max.min((i64::MAX as u64).saturating_sub(from)).max(1);
        let options = BlobClientDownloadOptions {
            range: Some(HttpRange::new(from, len)),
            parallel: NonZero::new(1),
            // One request for the whole range.
            partition_size: NonZero::new(usize::try_from(len).unwrap_or(usize::MAX)),
            ..BlobClientDownloadOptions::default()
        };
        let client = self.blob(blob);
        let request = async { client.download(Some(options)).await?.body.collect().await };
        match self.ask(&call, request).await {
            // Nothing is there behind the end.
            Err(Error::Refused { status: 416, .. }) => Ok(Some(Bytes::new())),
            answer => unless_absent(answer),
        }
    }

    async fn list(&self, container: &str, prefix: &str, page: Option<&str>) -> Result<Page, Error> {
        let call = Call::on_container("List Blobs", container);
        let client = self.container(container);
        let options = BlobContainerClientListBlobsOptions {
            marker: page.map(str::to_owned),
            maxresults: self.page_size,
            prefix: Some(prefix.to_owned()).filter(|prefix| !prefix.is_empty()),
            ..BlobContainerClientListBlobsOptions::default()
        };
        let request = async {
            let answer = client.list_blobs(Some(options))?.into_pages().try_next().await?;
            answer.map(|answer| answer.into_model()).transpose()
        };
        let Some(answer) = self.ask(&call, request).await? else { return Ok(Page::default()) };
        // Names that we could not have given, such as those with a trailing dot, are not blobs of ours.
        let mut names: Vec<BlobName> = answer
            .blob_items
            .into_iter()
            .filter_map(|item| item.name)
            .filter_map(|name| BlobName::new(name).ok())
            .collect();
        names.sort_unstable();
        names.dedup();
        Ok(Page { names, next: answer.next_marker.filter(|marker| !marker.is_empty()) })
    }

    async fn delete(&self, blob: &BlobRef) -> Result<(), Error> {
        let call = Call::on_blob("Delete Blob", blob, &Condition::None);
        let client = self.blob(blob);
        unless_absent(self.ask(&call, client.delete(None)).await).map(drop)
    }
}

/// `None` for the one answer that says that the blob is not there.
fn unless_absent<T>(answer: Result<T, Error>) -> Result<Option<T>, Error> {
    match answer {
        Ok(answer) => Ok(Some(answer)),
        Err(Error::Refused { status: 404, code, .. }) if code == answers::BLOB_NOT_FOUND => Ok(None),
        Err(error) => Err(error),
    }
}

fn conditions(condition: &Condition) -> (Option<Etag>, Option<Etag>) {
    match condition {
        Condition::None => (None, None),
        Condition::Absent => (None, Some(Etag::from("*"))),
        Condition::Matches(etag) => (Some(Etag::from(etag.clone())), None),
    }
}

fn content_type(headers: &BlobHeaders) -> Option<String> {
    Some(headers.content_type.clone()).filter(|text| !text.is_empty())
}

fn written(call: &Call<'_>, headers: &Headers) -> Result<Written, Error> {
    Ok(Written { etag: etag(call, headers)?, date: date(call, headers)? })
}

fn etag(call: &Call<'_>, headers: &Headers) -> Result<String, Error> {
    headers.get_optional_string(&ETAG).ok_or_else(|| call.no_answer("the answer has no ETag"))
}

/// The service's clock. The protocol of commits goes by it, so ours is no substitute.
fn date(call: &Call<'_>, headers: &Headers) -> Result<SystemTime, Error> {
    answers::date(headers).ok_or_else(|| call.no_answer("the answer has no readable Date"))
}

/// The endpoint without a slash at its end, if a credential may be sent there.
fn check_endpoint(endpoint: &Url, allow_http: bool) -> Result<Url, Error> {
    let refuse = |reason: &str| Err(Error::Configuration { reason: reason.to_owned() });
    if !endpoint.username().is_empty() || endpoint.password().is_some() {
        return refuse("the endpoint must not contain a user name or a password");
    }
    if endpoint.query().is_some() || endpoint.fragment().is_some() {
        return refuse("the endpoint must not have a query; a SAS belongs in `credential`, type \"sas\"");
    }
    let loopback = match endpoint.host() {
        Some(url::Host::Domain(name)) => name == "localhost" || name.ends_with(".localhost"),
        Some(url::Host::Ipv4(address)) => address.is_loopback(),
        Some(url::Host::Ipv6(address)) => address.is_loopback(),
        None => return refuse("the endpoint has no host"),
    };
    match endpoint.scheme() {
        "https" => {}
        "http" if loopback || allow_http => {}
        "http" => {
            return refuse(
                "the endpoint must be https: over http everybody on the way sees the credential (allow_http = true permits it)",
            );
        }
        other => return refuse(&format!("the endpoint must be https, not {other}")),
    }
    let mut endpoint = endpoint.clone();
    if let Ok(mut segments) = endpoint.path_segments_mut() {
        segments.pop_if_empty();
    }
    Ok(endpoint)
}

#[cfg(test)]
mod tests;
