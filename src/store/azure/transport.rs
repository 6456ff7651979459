//! The last step of the SDK's pipeline: authorize, send once, take the answer's head.
//!
//! Owns: the pool of connections; bodies in the chunks that they were made of.
//! Does not own: time-outs of whole attempts; see `AzureStore::ask`.

use std::collections::HashMap;
use std::convert::Infallible;
use std::error::Error as _;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use azure_core::error::ErrorKind;
use azure_core::http::headers::{HeaderName, HeaderValue, Headers};
use azure_core::http::policies::{Policy, PolicyResult};
use azure_core::http::{AsyncRawResponse, Body, Context, Request, StatusCode, Transport};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use futures::{StreamExt, stream};

use super::authorize::Authorization;
use super::checksum::Sum;
use crate::model::BlockContent;
use crate::store::Error;

/// The body of a request, in its context.
pub(super) struct Payload(pub(super) BlockContent);

/// A checksum for a request that the SDK has no option for, in its context.
pub(super) struct PayloadChecksum(pub(super) Sum);

/// A transport that keeps up to `connections` idle connections.
pub(super) fn build(authorization: Authorization, connections: usize) -> Result<Transport, Error> {
    let client = reqwest::Client::builder()
        .redirect(reqwest::redirect::Policy::none())
        .retry(reqwest::retry::never())
        // A blob with a Content-Encoding is read as it was written.
        .no_gzip()
        .no_deflate()
        .no_brotli()
        .no_zstd()
        .connect_timeout(Duration::from_secs(20))
        .tcp_nodelay(true)
        .pool_max_idle_per_host(connections.max(1))
        .pool_idle_timeout(Duration::from_secs(30))
        .build()
        .map_err(|error| Error::Configuration { reason: format!("no HTTP client can be made: {error}") })?;
    Ok(Transport::with_policy(Arc::new(Sender { client, authorization })))
}

#[derive(Debug)]
struct Sender {
    client: reqwest::Client,
    authorization: Authorization,
}

#[async_trait]
impl Policy for Sender {
    #[expect(elided_lifetimes_in_paths, reason = "the trait's own spelling, which async_trait goes by")]
    async fn send(&self, context: &Context, request: &mut Request, _: &[Arc<dyn Policy>]) -> PolicyResult {
        if let Some(PayloadChecksum(sum)) = context.value() {
            add_checksum(request, sum);
        }
        let payload = context.value::<Payload>();
        if let Some(Payload(content)) = payload {
            // The SDK saw an empty body and has said so.
            request.insert_header("content-length", content.len().to_string());
        }
        // Signed last, and on a copy: what the SDK logs has neither signature nor SAS in it.
        let mut signed = request.clone();
        self.authorization.authorize(&mut signed)?;
        let method = reqwest::Method::from_bytes(signed.method().as_str().as_bytes())
            .map_err(|error| azure_core::Error::new(ErrorKind::Other, error))?;
        let mut outgoing = self.client.request(method, signed.url().clone());
        for (name, value) in signed.headers().iter() {
            outgoing = outgoing.header(name.as_str(), value.as_str());
        }
        let body = match (payload, signed.body()) {
            (Some(Payload(content)), _) => reqwest::Body::wrap_stream(chunks(content.clone())),
            (None, Body::Bytes(bytes)) => bytes.clone().into(),
            (None, Body::SeekableStream(stream)) => reqwest::Body::wrap_stream(stream.clone()),
        };
        let answer = outgoing.body(body).send().await.map_err(no_answer)?;
        let status = StatusCode::from(answer.status().as_u16());
        let headers = headers(answer.headers());
        let body = answer.bytes_stream().map(|part| part.map_err(no_answer));
        Ok(AsyncRawResponse::new(status, headers, Box::pin(body)))
    }
}

/// The chunks as they are; none is copied.
fn chunks(content: BlockContent) -> impl stream::Stream<Item = Result<Bytes, Infallible>> {
    stream::iter(0..content.chunks().len()).map(move |i| Ok(content.chunks()[i].clone()))
}

fn add_checksum(request: &mut Request, sum: &Sum) {
    match sum {
        Sum::Crc64(bytes) => request.insert_header("x-ms-content-crc64", STANDARD.encode(bytes)),
        Sum::Md5(bytes) => request.insert_header("content-md5", STANDARD.encode(bytes)),
        Sum::None => {}
    }
}

fn headers(map: &reqwest::header::HeaderMap) -> Headers {
    let readable = map.iter().filter_map(|(name, value)| {
        let value = value.to_str().ok()?;
        Some((HeaderName::from(name.as_str().to_owned()), HeaderValue::from(value.to_owned())))
    });
    Headers::from(readable.collect::<HashMap<_, _>>())
}

/// What went wrong, in words without the URL, which may carry a SAS.
fn no_answer(error: reqwest::Error) -> azure_core::Error {
    let error = error.without_url();
    let kind = match error.is_connect() {
        true => ErrorKind::Connection,
        false => ErrorKind::Io,
    };
    let mut words = error.to_string();
    let mut source = error.source();
    while let Some(inner) = source {
        words.push_str(": ");
        words.push_str(&inner.to_string());
        source = inner.source();
    }
    azure_core::Error::with_message(kind, words)
}
