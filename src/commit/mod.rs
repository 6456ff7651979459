//! Commits sealed blobs, then persists the offset that follows them.
//!
//! Owns: the order blob, then offset; the verdict on unclear commits. It is the only sender of Put Block List.
//! Does not own: encoding, staging, the timing of flushes and rebalances.
//! Crash: between the two steps the blobs exist and the offset lags; the interval is then read and written again under
//! new names (at_least_once).

mod blob;
mod partition;
mod persister;
mod producer;
mod room;
mod source;
#[cfg(test)]
mod tests;

pub use blob::{CommitId, commit_blob};
pub use partition::{Commit, CommitEvent, PartitionCommitter, Shared};
pub use persister::{Owner, Persister};
pub use producer::{BlobProducer, CommittedBlob, Flushed, ProducerOptions};

use crate::error::Class;
use crate::{format, offset, producer as blobs, store};

/// Why a commit did not come to its end.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The record cannot be written in the blob's format; it is not taken.
    #[error("the record cannot be written")]
    Record(#[source] format::BadRecord),
    /// A blob could not be sealed.
    #[error("a blob of the commit cannot be sealed")]
    Seal(#[from] blobs::Error),
    /// The blob's name belongs to a blob of somebody else.
    #[error("{blob} exists already and is not ours")]
    NameTaken {
        /// Container and name.
        blob: String,
        /// The commit that made it, where it says so.
        winner: Option<String>,
    },
    /// Staged blocks are gone.
    #[error("blocks of {blob} are no longer staged: they expired, or somebody wrote the blob and removed it")]
    BlocksGone {
        /// Container and name.
        blob: String,
    },
    /// The store refuses for good.
    #[error("{blob} cannot be committed")]
    Store {
        /// Container and name.
        blob: String,
        /// Why.
        #[source]
        source: store::Error,
    },
    /// The offset cannot be persisted.
    #[error("the offset cannot be persisted")]
    Persist(#[from] offset::Error),
    /// A call for a source that is not registered, is registered already, or has failed.
    #[error("source {name:?} {reason}")]
    Source {
        /// The source's name.
        name: String,
        /// What is wrong.
        reason: &'static str,
    },
    /// A source could not be flushed while the producer was stopped.
    #[error("source {name:?} could not be flushed at the stop")]
    Stop {
        /// The source's name.
        name: String,
        /// Why.
        #[source]
        source: Box<Error>,
    },
    /// A call after `stop`.
    #[error("the producer is stopped")]
    Stopped,
}

impl Error {
    /// What to do about it.
    pub fn class(&self) -> Class {
        match self {
            Error::Record(_) => Class::BadData,
            Error::Seal(error) => error.class(),
            Error::Stop { source, .. } => source.class(),
            Error::NameTaken { .. } | Error::BlocksGone { .. } => Class::Lost,
            Error::Store { source, .. } => source.class(),
            Error::Persist(error) => error.class(),
            Error::Source { .. } | Error::Stopped => Class::Bug,
        }
    }
}
