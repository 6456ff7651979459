//! The blob producer: open blobs, staging, sealing.
//!
//! Owns: the blobs of a source that take records now, their blocks on the way to the store.
//! Does not own: commits. A sealed blob is handed to [`crate::commit`], which alone makes it visible.
//! Crash: whatever was staged is invisible and expires at the store.

mod destination;
mod factory;
mod open_blobs;
mod stager;
#[cfg(test)]
pub(crate) mod tests;
mod writer;

pub use destination::{Candidates, Claims, Destination, Naming};
pub use factory::{Envelope, NewBlob, SharedFactory, WriterFactory};
pub use open_blobs::{OpenBlobs, OutputKey};
pub use stager::Stager;
pub use writer::{BlobDescription, BlobLimits, BlobWriter, PendingBlob};

use crate::error::Class;
use crate::{format, model, store};

/// Why a record could not be written or a blob not be sealed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The record cannot be written in the blob's format. The blob is as it was before.
    #[error("the record cannot be written")]
    BadRecord(#[from] format::BadRecord),
    /// The blob's name is not one.
    #[error("the blob cannot be named")]
    Name(#[from] model::BadBlobName),
    /// A block could not be staged, for good.
    #[error("a block of {blob} cannot be staged")]
    Staging {
        /// Container and name.
        blob: String,
        /// Why.
        #[source]
        source: store::Error,
    },
    /// `close` was called while bytes had not been flushed.
    #[error("the blob has {bytes} bytes that are not flushed; call flush before close")]
    Unflushed {
        /// How many.
        bytes: usize,
    },
    /// A call after `close`.
    #[error("the blob is closed")]
    Closed,
    /// A staging task ended in a way that should not be possible.
    #[error("staging ended without a result")]
    Interrupted,
}

impl Error {
    /// What to do about it.
    pub fn class(&self) -> Class {
        match self {
            Error::BadRecord(_) => Class::BadData,
            Error::Name(_) => Class::BadPlan,
            Error::Staging { source, .. } => source.class(),
            Error::Unflushed { .. } | Error::Closed | Error::Interrupted => Class::Bug,
        }
    }
}
