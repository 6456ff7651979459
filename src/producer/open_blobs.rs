//! The open blobs of one source, by output key.
//!
//! Owns: which blob a record goes to, sealing blobs that are full or too many.
//! Does not own: when the source is flushed.

use super::{BlobWriter, Error, PendingBlob};
use crate::model::RecordRef;

/// What decides which open blob of a source a record goes to: the id of its schema.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct OutputKey(pub u32);

struct Open {
    key: OutputKey,
    writer: BlobWriter,
    used: u64,
}

/// The blobs of one commit in the making: those that take records, and those sealed already.
pub struct OpenBlobs {
    open: Vec<Open>,
    sealed: Vec<PendingBlob>,
    sealed_bytes: u64,
    max_open: usize,
    tick: u64,
}

impl OpenBlobs {
    /// No blob yet, and never more than `max_open` that take records at once.
    pub fn new(max_open: usize) -> OpenBlobs {
        let max_open = max_open.max(1);
        OpenBlobs { open: Vec::new(), sealed: Vec::new(), sealed_bytes: 0, max_open, tick: 0 }
    }

    /// Writes a record into the open blob of `key`, which `create` makes when there is none.
    ///
    /// # Errors
    /// Those of [`BlobWriter::write`], and of `create`.
    pub fn write(
        &mut self,
        key: OutputKey,
        record: &RecordRef<'_>,
        create: impl FnOnce() -> Result<BlobWriter, Error>,
    ) -> Result<(), Error> {
        self.tick += 1;
        let at = match self.open.iter().position(|open| open.key == key) {
            Some(at) => at,
            None => {
                if self.open.len() >= self.max_open {
                    self.seal_least_recently_used()?;
                }
                self.open.push(Open { key, writer: create()?, used: self.tick });
                self.open.len() - 1
            }
        };
        let open = &mut self.open[at];
        let written = open.writer.write(record);
        if open.writer.records() == 0 {
            // Its first record was bad: a blob without records is never made.
            self.open.swap_remove(at);
            return written;
        }
        written?;
        open.used = self.tick;
        if open.writer.is_full() {
            let full = self.open.swap_remove(at);
            self.seal(full)?;
        }
        Ok(())
    }

    /// Seals all open blobs and hands over every blob since the last call, for one commit.
    ///
    /// # Errors
    /// Those of [`BlobWriter::flush`]; the source cannot go on then.
    pub fn seal_all(&mut self) -> Result<Vec<PendingBlob>, Error> {
        for open in std::mem::take(&mut self.open) {
            self.seal(open)?;
        }
        self.sealed_bytes = 0;
        Ok(std::mem::take(&mut self.sealed))
    }

    /// Gives everything up.
    pub fn abandon(&mut self) {
        self.open.clear();
        self.sealed.clear();
        self.sealed_bytes = 0;
    }

    /// Tells at once whether a block of any blob has failed for good; never waits.
    ///
    /// # Errors
    /// [`Error::Staging`]; the source cannot go on then.
    pub fn check(&mut self) -> Result<(), Error> {
        self.open.iter_mut().try_for_each(|open| open.writer.check())?;
        self.sealed.iter_mut().try_for_each(PendingBlob::check)
    }

    /// Bytes in no block yet, of all open blobs.
    pub fn buffered(&self) -> usize {
        self.open.iter().map(|open| open.writer.buffered()).sum()
    }

    /// Bytes in no block yet of the blob that has most of them.
    pub fn largest_tail(&self) -> usize {
        self.open.iter().map(|open| open.writer.buffered()).max().unwrap_or(0)
    }

    /// Stages early what the blob with the largest tail has buffered.
    ///
    /// # Errors
    /// Those of [`BlobWriter::flush`].
    pub fn cut_largest(&mut self) -> Result<(), Error> {
        match self.open.iter_mut().max_by_key(|open| open.writer.buffered()) {
            Some(open) => open.writer.flush(),
            None => Ok(()),
        }
    }

    /// Whether there is neither an open nor a sealed blob.
    pub fn is_empty(&self) -> bool {
        self.open.is_empty() && self.sealed.is_empty()
    }

    /// Number of blobs that take records.
    pub fn open_count(&self) -> usize {
        self.open.len()
    }

    /// Records in all of them.
    pub fn records(&self) -> u64 {
        let open: u64 = self.open.iter().map(|open| open.writer.records()).sum();
        open + self.sealed.iter().map(PendingBlob::records).sum::<u64>()
    }

    /// Bytes in all of them.
    pub fn bytes(&self) -> u64 {
        self.sealed_bytes + self.open.iter().map(|open| open.writer.bytes()).sum::<u64>()
    }

    fn seal_least_recently_used(&mut self) -> Result<(), Error> {
        let oldest = self.open.iter().enumerate().min_by_key(|(_, open)| open.used).map(|(at, _)| at);
        match oldest {
            Some(at) => {
                let open = self.open.swap_remove(at);
                self.seal(open)
            }
            None => Ok(()),
        }
    }

    fn seal(&mut self, mut open: Open) -> Result<(), Error> {
        open.writer.flush()?;
        self.sealed_bytes += open.writer.bytes();
        self.sealed.extend(open.writer.close()?);
        Ok(())
    }
}
