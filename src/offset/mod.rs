//! The port by which offsets survive the process, and its errors.
//!
//! Owns: the stored form of a feed partition's offset (an opaque string here), single rounds of requests.
//! Does not own: when to persist (see [`crate::commit`]), what the string means (see [`crate::feed`]).
//! Crash: a batch may be stored in part; each entry is stored whole or not at all.

use std::sync::Arc;

use async_trait::async_trait;

use crate::error::Class;
use crate::model::FeedPartitionKey;
use crate::plan;

#[doc(hidden)]
pub mod contract;
mod file;
mod ledger;
pub mod memory;
mod zookeeper;

pub use file::FileOffsets;
pub use memory::MemoryOffsets;
pub use zookeeper::ZookeeperOffsets;

/// Bytes of the longest offset that is stored; what is longer in a store is none of ours.
pub const MAX_OFFSET_BYTES: usize = 1024;

/// The storage that a plan asks for. Nothing is contacted yet: a server that is down now shows in the first call.
///
/// # Errors
/// [`Error::Configuration`] when the plan's section can never work.
pub fn open(section: &plan::OffsetStorage) -> Result<SharedOffsets, Error> {
    Ok(match section {
        plan::OffsetStorage::Zookeeper(zookeeper) => Arc::new(ZookeeperOffsets::new(zookeeper)?),
        plan::OffsetStorage::File { path } => Arc::new(FileOffsets::new(path)?),
        plan::OffsetStorage::Memory => Arc::new(MemoryOffsets::new()),
    })
}

/// One offset to store.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PersistOffset {
    /// Whose.
    pub key: FeedPartitionKey,
    /// The feed's own string; read back unchanged.
    pub offset: String,
}

/// Keeps the offsets of feed partitions.
///
/// A store that can compares versions: it never overwrites a value that it has not read or written itself, so an
/// offset that somebody else moved is an [`Error::Conflict`] and not lost. One instance belongs to one process and
/// is shared by its workers.
#[async_trait]
pub trait OffsetStorage: Send + Sync + 'static {
    /// Stores each entry of `batch`, in as few requests as the store allows. The answer has one result per entry, in
    /// the order of `batch`; a failing entry never keeps the others from being stored in the same call. Keys in a
    /// batch are distinct.
    async fn persist_offsets(&self, batch: &[PersistOffset]) -> Vec<Result<(), Error>>;

    /// Asks the store for the offset persisted last; `None` when there is none.
    ///
    /// Also takes note of the entry's version: after this call the next `persist_offsets` for `key` is conditioned
    /// on what was seen here. Called at every assignment of the partition.
    async fn find_latest_persisted_offset(&self, key: &FeedPartitionKey) -> Result<Option<String>, Error>;

    /// The offset that this instance persisted or found last, without asking the store.
    fn current_offset(&self, key: &FeedPartitionKey) -> Option<String>;

    /// All entries of `plan`, sorted by key.
    async fn list(&self, plan: &str) -> Result<Vec<PersistOffset>, Error>;

    /// Removes an entry; absent is no error.
    async fn delete(&self, key: &FeedPartitionKey) -> Result<(), Error>;

    /// Gives up connections in good order; no call follows.
    async fn close(&self) {}
}

/// An offset storage as the rest of the code holds it.
pub type SharedOffsets = Arc<dyn OffsetStorage>;

/// Why an offset could not be stored or read. Messages never contain credentials.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// Somebody else changed the entry since this instance last saw it.
    #[error("the offset of {key} was changed by somebody else: stored is {stored:?}, ours is {ours:?}")]
    Conflict {
        /// Whose.
        key: FeedPartitionKey,
        /// What is there now; `None` when the entry is gone.
        stored: Option<String>,
        /// What was to be stored.
        ours: String,
    },
    /// The store does not answer, or not well; it may have acted.
    #[error("offset storage {store} is not available")]
    Unavailable {
        /// Kind and address, such as `zookeeper localhost:2181`.
        store: String,
        /// Why.
        #[source]
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// The store answers but does not allow it.
    #[error("offset storage {store} does not allow it: {hint}")]
    Denied {
        /// Kind and address.
        store: String,
        /// The permission that is needed.
        hint: String,
    },
    /// What is stored cannot be an entry of ours.
    #[error("offset storage {store} holds something unreadable at {place}: {reason}")]
    Corrupt {
        /// Kind and address.
        store: String,
        /// Node or file.
        place: String,
        /// What is wrong with it.
        reason: String,
    },
    /// The plan's offset storage section cannot work.
    #[error("the offset storage cannot be used: {reason}")]
    Configuration {
        /// What is wrong and what to do.
        reason: String,
    },
}

impl Error {
    /// What to do about it.
    pub fn class(&self) -> Class {
        match self {
            Error::Conflict { .. } => Class::Lost,
            Error::Unavailable { .. } => Class::Retry,
            Error::Denied { .. } => Class::Denied,
            Error::Corrupt { .. } => Class::BadData,
            Error::Configuration { .. } => Class::BadPlan,
        }
    }
}

impl crate::retry::Classify for Error {
    fn class(&self) -> Class {
        Error::class(self)
    }
}

/// Refuses offsets that no store takes, before they reach one.
fn check_offset(entry: &PersistOffset) -> Result<(), Error> {
    let length = entry.offset.len();
    if length <= MAX_OFFSET_BYTES {
        return Ok(());
    }
    let key = &entry.key;
    let reason =
        format!("the offset of {key} is {length} bytes long, {MAX_OFFSET_BYTES} at most can be stored");
    Err(Error::Configuration { reason })
}

/// The offset in `bytes` that a store holds, or why it cannot be one.
fn stored_offset(bytes: &[u8]) -> Result<String, String> {
    if bytes.len() > MAX_OFFSET_BYTES {
        return Err(format!("{} bytes are too many for an offset", bytes.len()));
    }
    String::from_utf8(bytes.to_vec()).map_err(|_| "the bytes are not UTF-8".to_owned())
}
