//! What is read and what is written: frames around values, formats of blobs.
//!
//! Owns: the verdict whether a record is good, the bytes of a blob from its first to its last.
//! Does not own: where schemas come from (see [`crate::registry`]), which blob a record goes to, blocks.
//! Crash: nothing here outlives the process; what is encoded and not staged is read again from Kafka.

pub mod avro;
pub mod confluent;
mod fault;

pub use fault::{BadRecord, Reason};

use crate::budget::Tail;
use crate::model::RecordRef;

/// What is known of the records in one blob.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Facts {
    /// Records taken.
    pub records: u64,
    /// Their bytes before compression, without frames.
    pub raw_bytes: u64,
    /// The schema of all of them, where the format has one.
    pub schema_id: Option<u32>,
}

/// Turns the records of one blob into its bytes. One encoder belongs to one open blob.
pub trait Encoder: Send {
    /// Takes one record; bytes that are finished go to `out`.
    ///
    /// # Errors
    /// [`BadRecord`] when the record is at fault. Encoder and `out` are then as they were before the call.
    fn append(&mut self, record: &RecordRef<'_>, out: &mut Tail) -> Result<(), BadRecord>;

    /// Moves everything that is held back to `out`, so that what is there can be read alone. May be called at any
    /// time; each call costs compression. Does nothing before the first record.
    fn flush(&mut self, out: &mut Tail);

    /// Ends the blob: like [`Encoder::flush`], and writes what the format has at its end. No record follows.
    fn finish(&mut self, out: &mut Tail) {
        self.flush(out);
    }

    /// Bytes of records that are held back.
    fn buffered(&self) -> usize;

    /// What was taken so far.
    fn facts(&self) -> Facts;
}
