//! Feeds for users of the library, in the parent's words: a feed gives its partitions, a partition its records.
//!
//! Owns: positions of partitions that are read by hand, one owned record at a time.
//! Does not own: the connector's way of reading (see [`crate::feed::LaneReader`]), which groups and borrows; when an
//! offset is persisted, and where.

mod kafka;
mod memory;

pub use self::kafka::KafkaFeed;
pub use self::memory::MemoryFeed;

use async_trait::async_trait;

use crate::error::Class;
use crate::kafka as client;
use crate::model::{BadOffset, Record};

/// A source of records in partitions.
#[async_trait]
pub trait Feed: Send + Sync {
    /// All its partitions, each at its beginning.
    ///
    /// # Errors
    /// Whatever keeps it from knowing them.
    async fn partitions(&self) -> Result<Vec<Box<dyn FeedPartition>>, Error>;
}

/// One partition of a feed, read by one caller.
#[async_trait]
pub trait FeedPartition: Send {
    /// What tells it from the other partitions of its feed, always the same.
    fn id(&self) -> &str;

    /// The next record; waits for one. `None` when there will be no more. Cancel safe: a record is not lost when the
    /// future is dropped.
    ///
    /// # Errors
    /// An error of the class [`Class::Retry`] may be gone at the next call. None moves the position.
    async fn next(&mut self) -> Result<Option<Record>, Error>;

    /// Whether [`FeedPartition::offset`] and [`FeedPartition::set_offset`] do what they say.
    fn supports_offset_management(&self) -> bool;

    /// Where the record after the last one given begins, as text that only `set_offset` of the same kind of feed reads:
    /// persist it when everything given is safe, and a restart begins behind that. `None` without offset management.
    fn offset(&self) -> Option<String>;

    /// Goes on from an offset that [`FeedPartition::offset`] has told, by this or another instance.
    ///
    /// # Errors
    /// [`Error::BadOffset`] when it is none; [`Error::NoOffsets`] without offset management. The position stays.
    async fn set_offset(&mut self, offset: &str) -> Result<(), Error>;
}

/// Why a feed could not be read.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The brokers, or the client.
    #[error("the feed cannot be read")]
    Kafka(#[from] client::Error),
    /// A text that is not an offset of this feed.
    #[error("partition {partition} has no such offset")]
    BadOffset {
        /// Its id.
        partition: String,
        /// What is wrong with it.
        #[source]
        source: BadOffset,
    },
    /// The partition has no offset management.
    #[error("partition {partition} has no offsets")]
    NoOffsets {
        /// Its id.
        partition: String,
    },
    /// A failure of a feed of somebody else.
    #[error("the feed failed")]
    Other {
        /// What to do about it.
        class: Class,
        /// What it was.
        #[source]
        source: Box<dyn std::error::Error + Send + Sync>,
    },
}

impl Error {
    /// What to do about it.
    pub fn class(&self) -> Class {
        match self {
            Error::Kafka(error) => error.class(),
            Error::BadOffset { .. } => Class::BadData,
            Error::NoOffsets { .. } => Class::Bug,
            Error::Other { class, .. } => *class,
        }
    }
}

impl crate::retry::Classify for Error {
    fn class(&self) -> Class {
        Error::class(self)
    }
}

#[cfg(test)]
mod tests;
