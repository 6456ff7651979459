//! One open blob: records in, blocks out.
//!
//! Owns: the blob's encoder, its tail, its staging tasks.
//! Does not own: when to flush or close it; the commit.

use std::sync::Arc;
use std::time::Instant;

use tracing::debug;

use super::stager::{Staging, staged};
use super::{Destination, Error, Stager};
use crate::budget::Tail;
use crate::format::Encoder;
use crate::model::{BlobHeaders, BlockId, Metadata, Offset, OffsetRange, RecordRef, SealedBlob};
use crate::store::SharedStore;
use crate::telemetry::FeedMetrics;

/// When a block is cut and when a blob is full.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BlobLimits {
    /// Bytes at which a block is cut.
    pub block_bytes: usize,
    /// Bytes at which the blob is full.
    pub blob_bytes: u64,
    /// Records at which it is full.
    pub records: u64,
    /// Blocks at which it is full; Azure allows 50,000.
    pub blocks: u32,
}

/// What a blob is before it has records.
pub struct BlobDescription {
    /// Where it goes.
    pub destination: Destination,
    /// Turns records into bytes.
    pub encoder: Box<dyn Encoder>,
    /// Headers that it is served with.
    pub headers: BlobHeaders,
    /// Metadata known from the start; the writer adds what it learns from records.
    pub metadata: Metadata,
    /// Its limits.
    pub limits: BlobLimits,
}

/// Writes one blob.
///
/// The contract is the parent's: `write` any number of times; `flush` cuts what is buffered and begins to stage it;
/// `close` waits for all blocks and seals the blob, but stages nothing itself, so bytes that are not flushed are an
/// error; after `close` every call is [`Error::Closed`]. Dropping it gives the blob up; what is staged expires.
pub struct BlobWriter {
    stager: Stager,
    metrics: FeedMetrics,
    destination: Arc<Destination>,
    encoder: Box<dyn Encoder>,
    headers: BlobHeaders,
    metadata: Metadata,
    limits: BlobLimits,
    tail: Tail,
    tasks: Staging,
    blocks: Vec<(u32, BlockId)>,
    next_block: u32,
    staged_bytes: u64,
    facts: Facts,
    opened: Instant,
    closed: bool,
}

#[derive(Debug, Default, Clone, Copy)]
struct Facts {
    records: u64,
    first: Offset,
    last: Offset,
    timestamps: Option<(i64, i64)>,
}

impl BlobWriter {
    /// A blob without records.
    pub fn new(stager: &Stager, metrics: &FeedMetrics, description: BlobDescription) -> BlobWriter {
        let BlobDescription { destination, encoder, headers, metadata, limits } = description;
        BlobWriter {
            stager: stager.clone(),
            metrics: metrics.clone(),
            destination: Arc::new(destination),
            encoder,
            headers,
            metadata,
            limits,
            tail: Tail::new(stager.budget()),
            tasks: Staging::new(),
            blocks: Vec::new(),
            next_block: 0,
            staged_bytes: 0,
            facts: Facts::default(),
            opened: Instant::now(),
            closed: false,
        }
    }

    /// Appends a record. Cuts and stages a block when enough has gathered.
    ///
    /// # Errors
    /// [`Error::BadRecord`] leaves the blob as it was. [`Error::Staging`] when an earlier block failed for good: the blob
    /// cannot be finished. [`Error::Closed`] after `close`.
    pub fn write(&mut self, record: &RecordRef<'_>) -> Result<(), Error> {
        if self.closed {
            return Err(Error::Closed);
        }
        self.encoder.append(record, &mut self.tail)?;
        self.facts.add(record);
        if self.tail.len() >= self.limits.block_bytes {
            self.cut()?;
        }
        Ok(())
    }

    /// Cuts what is buffered into a block and begins to stage it. Nothing happens when nothing is buffered.
    ///
    /// # Errors
    /// As [`BlobWriter::write`], without `BadRecord`.
    pub fn flush(&mut self) -> Result<(), Error> {
        if self.closed {
            return Err(Error::Closed);
        }
        if self.facts.records > 0 {
            self.encoder.flush(&mut self.tail);
        }
        self.cut()
    }

    /// Takes no more records and gives what becomes the sealed blob; `None` when there was no record, since a blob
    /// without records is never made.
    ///
    /// # Errors
    /// [`Error::Unflushed`] when `flush` is missing; the blob stays open. [`Error::Closed`] at the second call.
    pub fn close(&mut self) -> Result<Option<PendingBlob>, Error> {
        if self.closed {
            return Err(Error::Closed);
        }
        let bytes = self.buffered();
        if bytes > 0 && self.facts.records > 0 {
            return Err(Error::Unflushed { bytes });
        }
        self.closed = true;
        if self.facts.records == 0 {
            return Ok(None);
        }
        let facts = self.facts;
        let mut metadata = std::mem::take(&mut self.metadata);
        facts.describe(&mut metadata);
        metadata.insert("raw_bytes".to_owned(), self.encoder.facts().raw_bytes.to_string());
        debug!(blob = self.destination.label(), records = facts.records, "blob sealed");
        Ok(Some(PendingBlob {
            destination: self.destination.clone(),
            store: self.stager.store().clone(),
            tasks: std::mem::take(&mut self.tasks),
            blocks: std::mem::take(&mut self.blocks),
            expected: self.next_block,
            headers: std::mem::take(&mut self.headers),
            metadata,
            records: facts.records,
            bytes: self.staged_bytes,
            range: OffsetRange { first: facts.first, next: facts.last.following() },
        }))
    }

    /// Bytes that are in no block yet.
    pub fn buffered(&self) -> usize {
        self.tail.len() + self.encoder.buffered()
    }

    /// Bytes of the blob so far; what the encoder still buffers counts before compression.
    pub fn bytes(&self) -> u64 {
        self.staged_bytes + self.buffered() as u64
    }

    /// Records so far.
    pub fn records(&self) -> u64 {
        self.facts.records
    }

    /// When it was opened.
    pub fn opened(&self) -> Instant {
        self.opened
    }

    /// Whether a limit of the blob is reached.
    pub fn is_full(&self) -> bool {
        self.bytes() >= self.limits.blob_bytes
            || self.facts.records >= self.limits.records
            // One block is kept for what is buffered.
            || self.next_block + 1 >= self.limits.blocks
    }

    /// Tells at once whether a block has failed for good; never waits.
    ///
    /// # Errors
    /// [`Error::Staging`]: the blob cannot be finished.
    pub fn check(&mut self) -> Result<(), Error> {
        while let Some(result) = self.tasks.try_join_next() {
            self.blocks.push(staged(result, &self.destination)?);
        }
        Ok(())
    }

    fn cut(&mut self) -> Result<(), Error> {
        // Failures for good are learnt here and not only at the end, hours later.
        self.check()?;
        if self.tail.is_empty() {
            return Ok(());
        }
        let content = self.tail.take();
        self.staged_bytes += content.len() as u64;
        self.stager.stage(&mut self.tasks, &self.destination, self.next_block, content, &self.metrics);
        self.next_block += 1;
        Ok(())
    }
}

impl Facts {
    fn add(&mut self, record: &RecordRef<'_>) {
        if self.records == 0 {
            self.first = record.offset;
        }
        self.last = record.offset;
        self.records += 1;
        if let Some(timestamp) = record.timestamp {
            let (min, max) = self.timestamps.unwrap_or((timestamp.millis, timestamp.millis));
            self.timestamps = Some((min.min(timestamp.millis), max.max(timestamp.millis)));
        }
    }

    fn describe(&self, metadata: &mut Metadata) {
        let mut set = |name: &str, value: String| metadata.insert(name.to_owned(), value);
        set("first_offset", self.first.to_string());
        set("last_offset", self.last.to_string());
        set("record_count", self.records.to_string());
        if let Some((min, max)) = self.timestamps {
            set("min_timestamp", min.to_string());
            set("max_timestamp", max.to_string());
        }
    }
}

/// A blob that takes no more records and waits for its last blocks to be staged.
pub struct PendingBlob {
    destination: Arc<Destination>,
    store: SharedStore,
    tasks: Staging,
    blocks: Vec<(u32, BlockId)>,
    expected: u32,
    headers: BlobHeaders,
    metadata: Metadata,
    records: u64,
    bytes: u64,
    range: OffsetRange,
}

impl PendingBlob {
    /// Tells at once whether a block has failed for good; never waits.
    ///
    /// # Errors
    /// [`Error::Staging`]: the blob cannot be sealed.
    pub fn check(&mut self) -> Result<(), Error> {
        while let Some(result) = self.tasks.try_join_next() {
            self.blocks.push(staged(result, &self.destination)?);
        }
        Ok(())
    }

    /// Waits until all blocks are staged. The second value keeps the blob's name claimed: drop it after the commit.
    ///
    /// # Errors
    /// [`Error::Staging`] when a block failed for good.
    pub async fn sealed(mut self) -> Result<(SealedBlob, Arc<Destination>), Error> {
        while let Some(result) = self.tasks.join_next().await {
            self.blocks.push(staged(result, &self.destination)?);
        }
        self.blocks.sort_unstable_by_key(|(number, _)| *number);
        let complete = self.blocks.iter().map(|(number, _)| *number).eq(0..self.expected);
        if !complete || self.blocks.is_empty() {
            return Err(Error::Interrupted);
        }
        let blob = self
            .destination
            .resolve(self.store.as_ref())
            .await
            .map_err(|source| Error::Staging { blob: self.destination.label(), source })?
            .clone();
        let sealed = SealedBlob {
            blob,
            blocks: self.blocks.into_iter().map(|(_, id)| id).collect(),
            headers: self.headers,
            metadata: self.metadata,
            records: self.records,
            bytes: self.bytes,
            range: self.range,
        };
        Ok((sealed, self.destination))
    }

    /// Records in it.
    pub fn records(&self) -> u64 {
        self.records
    }

    /// Its name, for messages.
    pub fn label(&self) -> String {
        self.destination.label()
    }
}
