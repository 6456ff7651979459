//! The port to blob storage, and its errors.
//!
//! Owns: single requests to a container, each sent once; the mapping of a backend's answers to [`Error`].
//! Does not own: retries (see [`crate::retry`]), names, the order of commits. Only `commit` calls
//! [`BlobStore::commit_block_list`].
//! Crash: a staged block is invisible until its list is committed; each request is atomic at the store.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use async_trait::async_trait;
use bytes::Bytes;

use crate::error::Class;
use crate::model::{BlobHeaders, BlobName, BlobRef, BlockContent, BlockId, Metadata};
use crate::plan;

mod azure;
#[doc(hidden)]
pub mod contract;
mod directory;
mod memory;
mod rules;

pub use azure::AzureStore;
pub use directory::DirectoryStore;
pub use memory::{Clock, Fault, Faults, MemoryStore, Operation, OperationKind};

/// What must be true of the blob for a write to happen.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Condition {
    /// Write whatever is there.
    None,
    /// `If-None-Match: *`: there is no committed blob of that name.
    Absent,
    /// `If-Match`: the committed blob has this ETag.
    Matches(String),
}

/// Everything that a Put Block List carries.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BlockList {
    /// The ids, in the order of the blob's bytes; taken from the uncommitted blocks only.
    pub blocks: Vec<BlockId>,
    /// Headers to serve the blob with.
    pub headers: BlobHeaders,
    /// Metadata of the blob.
    pub metadata: Metadata,
    /// Condition of the write.
    pub condition: Condition,
}

/// Answer to a request that changed something.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Written {
    /// The blob's ETag; empty after staging.
    pub etag: String,
    /// The server's clock (`Date`) when it answered.
    pub date: SystemTime,
}

/// What is known of a committed blob without reading it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Properties {
    /// Changes with every write.
    pub etag: String,
    /// Bytes.
    pub len: u64,
    /// Headers that it is served with.
    pub headers: BlobHeaders,
    /// Metadata, names in lower case.
    pub metadata: Metadata,
    /// The server's clock (`Date`) when it answered.
    pub date: SystemTime,
}

/// One page of a listing.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Page {
    /// Names of committed blobs, ascending by bytes, without duplicates.
    pub names: Vec<BlobName>,
    /// Where the next page begins; `None` on the last.
    pub next: Option<String>,
}

/// Blob storage: a place of containers, blobs, and blocks.
///
/// Each call is one attempt. Cancelling a call leaves open whether the store acted.
#[async_trait]
pub trait BlobStore: Send + Sync + 'static {
    /// Makes sure that the container exists and may be used; `create` makes it when it is absent.
    async fn ensure_container(&self, container: &str, create: bool) -> Result<(), Error>;

    /// Stages a block (Put Block) with a checksum that the store verifies where it can.
    async fn stage_block(
        &self,
        blob: &BlobRef,
        id: &BlockId,
        content: &BlockContent,
    ) -> Result<Written, Error>;

    /// Makes a blob of staged blocks (Put Block List). Never called with an empty list.
    async fn commit_block_list(&self, blob: &BlobRef, list: &BlockList) -> Result<Written, Error>;

    /// Writes a whole small blob in one request (Put Blob).
    async fn put(
        &self,
        blob: &BlobRef,
        content: Bytes,
        headers: &BlobHeaders,
        metadata: &Metadata,
        condition: &Condition,
    ) -> Result<Written, Error>;

    /// Properties of a committed blob; `None` only when the store says that this *blob* is not there.
    async fn properties(&self, blob: &BlobRef) -> Result<Option<Properties>, Error>;

    /// Bytes `[from, from + max)` of a committed blob, fewer at its end; `None` as for `properties`.
    async fn read(&self, blob: &BlobRef, from: u64, max: u64) -> Result<Option<Bytes>, Error>;

    /// Committed blobs whose names start with `prefix`, from `page` (a previous page's `next`) on.
    async fn list(&self, container: &str, prefix: &str, page: Option<&str>) -> Result<Page, Error>;

    /// Removes a committed blob; absent is no error.
    async fn delete(&self, blob: &BlobRef) -> Result<(), Error>;
}

/// A store as the rest of the code holds it.
pub type SharedStore = Arc<dyn BlobStore>;

/// The store that a plan asks for. Nothing is sent; a directory is opened and its old left-overs are removed.
///
/// # Errors
/// [`Error::Configuration`] when the plan's section can never work, [`Error::Disk`] when the directory's disk refuses.
pub fn open(store: &plan::Store) -> Result<SharedStore, Error> {
    Ok(match store {
        plan::Store::Azure(azure) => Arc::new(AzureStore::new(azure)?),
        plan::Store::Directory(directory) => Arc::new(DirectoryStore::open(&directory.path)?),
        plan::Store::Memory => Arc::new(MemoryStore::new()),
    })
}

/// Whether a write may happen where the committed blob has the ETag `present`; for stores that decide themselves.
fn admit(blob: &BlobRef, condition: &Condition, present: Option<&str>) -> Result<(), Error> {
    match condition {
        Condition::None => Ok(()),
        Condition::Absent if present.is_none() => Ok(()),
        Condition::Absent => Err(Error::AlreadyExists { blob: blob.to_string() }),
        Condition::Matches(etag) if present == Some(etag.as_str()) => Ok(()),
        Condition::Matches(_) => Err(Error::ConditionNotMet { blob: blob.to_string() }),
    }
}

/// Why a request to a store failed.
///
/// Messages never contain credentials.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The container is not there.
    #[error("container {container:?} does not exist")]
    ContainerNotFound {
        /// Its name.
        container: String,
    },
    /// A write conditioned on absence met a committed blob.
    #[error("blob {blob} already exists")]
    AlreadyExists {
        /// Container and name.
        blob: String,
    },
    /// A write conditioned on an ETag met another one, or no blob.
    #[error("blob {blob} is not the version that the write was conditioned on")]
    ConditionNotMet {
        /// Container and name.
        blob: String,
    },
    /// A block in the list is not staged (expired, or of a blob committed meanwhile).
    #[error("the block list of {blob} names a block that is not staged")]
    UnknownBlock {
        /// Container and name.
        blob: String,
    },
    /// The bytes that arrived have another checksum than the bytes that were sent.
    #[error("the checksum of {blob} does not match what arrived")]
    Checksum {
        /// Container and name.
        blob: String,
    },
    /// Credentials are wrong, expired, or lack a permission (401, 403).
    #[error("{operation} on {resource} is not allowed (HTTP {status} {code}): {hint}")]
    Denied {
        /// What was tried, in the store's words ("Put Block").
        operation: &'static str,
        /// Container, or container and blob.
        resource: String,
        /// The HTTP status.
        status: u16,
        /// The store's error code, may be empty.
        code: String,
        /// The permission that is needed, or what else to do.
        hint: String,
    },
    /// The store is there but does not serve us now (408, 409 of a kind that passes, 429, 5xx, disk full).
    #[error("{operation} on {resource} failed for now (HTTP {status} {code})")]
    Unavailable {
        /// What was tried.
        operation: &'static str,
        /// Container, or container and blob.
        resource: String,
        /// The HTTP status.
        status: u16,
        /// The store's error code, may be empty.
        code: String,
        /// How long the store asks to wait.
        retry_after: Option<Duration>,
    },
    /// No answer: refused, reset, timed out, or unreadable. The store may have acted.
    #[error("{operation} on {resource} got no answer")]
    Transport {
        /// What was tried.
        operation: &'static str,
        /// Container, or container and blob.
        resource: String,
        /// Why, without credentials.
        #[source]
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// The store's disk refused (directory store).
    #[error("{operation} on {resource} failed")]
    Disk {
        /// What was tried.
        operation: &'static str,
        /// The path below the root.
        resource: String,
        /// The system's answer.
        #[source]
        source: std::io::Error,
    },
    /// The store refused a request that can never succeed as it is (other 4xx).
    #[error("{operation} on {resource} was refused (HTTP {status} {code}): {message}")]
    Refused {
        /// What was tried.
        operation: &'static str,
        /// Container, or container and blob.
        resource: String,
        /// The HTTP status.
        status: u16,
        /// The store's error code, may be empty.
        code: String,
        /// The store's message, without credentials.
        message: String,
    },
    /// The plan's store section cannot work.
    #[error("the store cannot be used: {reason}")]
    Configuration {
        /// What is wrong and what to do.
        reason: String,
    },
}

impl Error {
    /// What to do about it.
    pub fn class(&self) -> Class {
        match self {
            Error::Unavailable { .. }
            | Error::Transport { .. }
            | Error::Disk { .. }
            | Error::Checksum { .. }
            | Error::ContainerNotFound { .. } => Class::Retry,
            Error::Denied { .. } => Class::Denied,
            Error::AlreadyExists { .. } | Error::ConditionNotMet { .. } | Error::UnknownBlock { .. } => {
                Class::Lost
            }
            Error::Configuration { .. } => Class::BadPlan,
            Error::Refused { .. } => Class::Bug,
        }
    }

    /// How long the store asked to wait before the next attempt.
    pub fn retry_after(&self) -> Option<Duration> {
        match self {
            Error::Unavailable { retry_after, .. } => *retry_after,
            _ => None,
        }
    }

    /// Whether the store may have acted although it reported failure.
    pub fn is_unclear(&self) -> bool {
        matches!(self, Error::Unavailable { .. } | Error::Transport { .. } | Error::Disk { .. })
    }

    /// A short word for metrics.
    pub fn kind(&self) -> &'static str {
        match self {
            Error::ContainerNotFound { .. } => "container_not_found",
            Error::AlreadyExists { .. } => "already_exists",
            Error::ConditionNotMet { .. } => "condition_not_met",
            Error::UnknownBlock { .. } => "unknown_block",
            Error::Checksum { .. } => "checksum",
            Error::Denied { .. } => "denied",
            Error::Unavailable { .. } => "unavailable",
            Error::Transport { .. } => "transport",
            Error::Disk { .. } => "disk",
            Error::Refused { .. } => "refused",
            Error::Configuration { .. } => "configuration",
        }
    }
}

impl crate::retry::Classify for Error {
    fn class(&self) -> Class {
        Error::class(self)
    }

    fn retry_after(&self) -> Option<Duration> {
        Error::retry_after(self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::Secret;
    use crate::plan::{AzureCredential, Checksum};

    fn azure(endpoint: &str) -> plan::Store {
        plan::Store::Azure(plan::AzureStore {
            account: "acc".to_owned(),
            endpoint: endpoint.parse().unwrap(),
            credential: AzureCredential::SharedKey(Secret::new("a2V5")),
            allow_http: false,
            checksum: Checksum::Crc64,
            create_container: true,
            request_timeout: Duration::from_secs(1),
            concurrency: 1,
        })
    }

    #[tokio::test]
    async fn a_plan_is_opened_by_its_kind() {
        let root = tempfile::tempdir().unwrap();
        let path = root.path().join("a/b");
        open(&plan::Store::Memory).unwrap().ensure_container("data", true).await.unwrap();
        let directory = open(&plan::Store::Directory(plan::DirectoryStore { path: path.clone() })).unwrap();
        directory.ensure_container("data", true).await.unwrap();
        assert!(path.join("data").is_dir());
        open(&azure("https://acc.blob.core.windows.net")).unwrap();
        let error = open(&azure("http://acc.blob.core.windows.net")).err().unwrap();
        assert_eq!(error.class(), Class::BadPlan);
    }

    #[test]
    fn conditions_admit_what_they_say() {
        let blob = BlobRef { container: "data".into(), name: BlobName::new("a").unwrap() };
        let check = |condition: Condition, present: Option<&str>, expected: Option<&str>| {
            let refused = admit(&blob, &condition, present).err();
            assert_eq!(refused.map(|error| error.kind()), expected, "{condition:?} on {present:?}");
        };
        let matches = || Condition::Matches("1".to_owned());
        check(Condition::None, None, None);
        check(Condition::None, Some("1"), None);
        check(Condition::Absent, None, None);
        check(Condition::Absent, Some("1"), Some("already_exists"));
        check(matches(), Some("1"), None);
        check(matches(), Some("2"), Some("condition_not_met"));
        check(matches(), None, Some("condition_not_met"));
    }
}
