//! What users of the library bring: how records become blobs.

use std::sync::Arc;

use super::{BlobDescription, Claims, Destination, Error, Naming, OutputKey};
use crate::budget::Budget;
use crate::format::BadRecord;
use crate::model::{Record, RecordRef, Ssp};

/// A record and where it goes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Envelope {
    /// Container, prefix and partition.
    pub ssp: Ssp,
    /// What is written. Its offset ends in the metadata of blobs only; offsets of one source should ascend.
    pub record: Record,
}

/// Everything that is known of a blob before it has records.
pub struct NewBlob<'a> {
    /// Who sends.
    pub source: &'a str,
    /// Where the blob goes.
    pub ssp: &'a Ssp,
    /// What [`WriterFactory::output_key`] said of the first record.
    pub key: OutputKey,
    /// The first record.
    pub first: RecordRef<'a>,
    /// What encoders take their buffers from.
    pub budget: &'a Budget,
    pub(crate) claims: &'a Claims,
}

impl NewBlob<'_> {
    /// The place that `naming` gives the blob in the container of its [`Ssp`].
    pub fn destination(&self, naming: Naming) -> Destination {
        Destination::new(self.ssp.container.clone(), naming, self.claims.clone())
    }
}

/// Decides what the blobs of a producer are: their names, their format, their limits.
///
/// Called while a source is locked, so it must not wait. The same factory serves all sources, from any thread.
pub trait WriterFactory: Send + Sync + 'static {
    /// Which of the open blobs of `ssp` takes the record: records of one key share blobs, in the order of sending. Keys
    /// of different [`Ssp`]s have nothing to do with each other.
    ///
    /// # Errors
    /// [`BadRecord`] when no blob can take it; `send` then fails with it, and the source goes on.
    fn output_key(&self, ssp: &Ssp, record: &RecordRef<'_>) -> Result<OutputKey, BadRecord>;

    /// Describes a new blob: its destination (see [`NewBlob::destination`]), encoder, headers, metadata and limits. The
    /// first record is written to it next.
    ///
    /// # Errors
    /// [`Error::Name`] or [`Error::BadRecord`]; `send` then fails with it, and the source goes on.
    fn describe(&self, blob: &NewBlob<'_>) -> Result<BlobDescription, Error>;
}

/// A factory as producers hold it.
pub type SharedFactory = Arc<dyn WriterFactory>;
