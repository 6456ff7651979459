//! Commits sealed blobs, then persists the offset that follows them.
//!
//! Owns: the order blob, then offset; the verdict on unclear commits. It is the only sender of Put Block List.
//! Does not own: encoding, staging, the timing of flushes and rebalances.
//! Crash: between the two steps the blobs exist and the offset lags; the interval is then read and written again under
//! new names (at_least_once).

mod blob;
mod partition;
mod persister;

pub use blob::{CommitId, commit_blob};
pub use partition::{Commit, CommitEvent, PartitionCommitter, Shared};
pub use persister::{Owner, Persister};

use crate::error::Class;
use crate::{offset, producer as blobs, store};

/// Why a commit did not come to its end.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
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
    /// A source that was not registered, or was registered twice.
    #[error("source {name:?} {reason}")]
    Source {
        /// The source's name.
        name: String,
        /// What is wrong.
        reason: &'static str,
    },
    /// A call after `stop`.
    #[error("the producer is stopped")]
    Stopped,
}

impl Error {
    /// What to do about it.
    pub fn class(&self) -> Class {
        match self {
            Error::Seal(error) => error.class(),
            Error::NameTaken { .. } | Error::BlocksGone { .. } => Class::Lost,
            Error::Store { source, .. } => source.class(),
            Error::Persist(error) => error.class(),
            Error::Source { .. } | Error::Stopped => Class::Bug,
        }
    }
}
