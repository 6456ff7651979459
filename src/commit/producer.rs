//! The parent's producer: register, send, flush, stop.
//!
//! Owns: the sources and their open blobs; which calls are allowed when.
//! Does not own: names and formats (see [`WriterFactory`](crate::producer::WriterFactory)), offsets: whoever sends knows
//! from what `flush` returns that everything sent before it is safe.
//! Crash: what no flush has committed is gone and has to be sent again (at least once). A crash in the middle of a flush
//! leaves some of its blobs: their records are in two blobs then.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use futures::future::join_all;
use tokio::runtime::Handle;
use tokio::sync::MutexGuard as AsyncGuard;
use tracing::{info, warn};

use super::room::{Room, cut};
use super::source::{End, Source, State};
use super::{CommitId, Error};
use crate::budget::Budget;
use crate::error::chain;
use crate::model::{BlobRef, OffsetRange};
use crate::producer::{self as blobs, Claims, Envelope, SharedFactory, Stager};
use crate::store::SharedStore;
use crate::telemetry::Telemetry;

/// What a producer may use.
#[derive(Clone)]
pub struct ProducerOptions {
    /// Bytes of records that all its sources hold together, from `send` until they are staged.
    pub memory: usize,
    /// Blocks on their way to the store at once.
    pub uploads: usize,
    /// Blobs of one source that take records at once; beyond it the least recently used is sealed. One at least.
    pub max_open_blobs: usize,
    /// Figures, by source in place of the feed, and health.
    pub telemetry: Telemetry,
}

impl Default for ProducerOptions {
    fn default() -> ProducerOptions {
        let telemetry = Telemetry::new();
        // There is no group to join.
        telemetry.health.clear("starting");
        ProducerOptions { memory: 256 << 20, uploads: 8, max_open_blobs: 64, telemetry }
    }
}

/// A blob that a flush made visible.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CommittedBlob {
    /// Container and name.
    pub blob: BlobRef,
    /// The commit that made it, also in its metadata.
    pub commit: CommitId,
    /// Records in it.
    pub records: u64,
    /// Bytes of it.
    pub bytes: u64,
    /// From its first record's offset to behind its last one's.
    pub range: OffsetRange,
}

/// What a flush made visible; nothing when there was nothing to flush.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Flushed {
    /// The blobs, in no particular order.
    pub blobs: Vec<CommittedBlob>,
}

impl Flushed {
    /// Records in all of them.
    pub fn records(&self) -> u64 {
        self.blobs.iter().map(|blob| blob.records).sum()
    }
}

/// Sends records to blobs.
///
/// Records are sent under the name of a *source* that was registered. Blocks are staged while records arrive; nothing is
/// visible before the source is flushed, and everything sent before a flush is visible after it. Sources have nothing to
/// do with each other but the memory that they share: calls for different sources run side by side, those for one source
/// one after the other.
///
/// **Failures.** Whatever may heal (no answer, 5xx, a missing container or permission) is tried again for as long as the
/// call is awaited, and shows in logs, metrics and health. A failure for good is reported once, by the call that meets
/// it or by the next `send` or `flush` of that source. From then on the source refuses every call until it is registered
/// anew, so that a failure that was overlooked cannot look like success later. All that was sent since its last flush is
/// given up then and has to be sent again; blobs of the failed flush may or may not be there. A record that
/// cannot be written ([`Error::Record`]) is no such failure: it is not taken, and the source goes on.
///
/// Dropping the producer without [`BlobProducer::stop`] gives up what is not flushed.
pub struct BlobProducer {
    store: SharedStore,
    stager: Stager,
    factory: SharedFactory,
    claims: Claims,
    room: Room,
    max_open_blobs: usize,
    telemetry: Telemetry,
    sources: Mutex<Sources>,
}

#[derive(Default)]
struct Sources {
    by_name: HashMap<Arc<str>, Arc<Source>>,
    phase: Phase,
}

#[derive(Default, Clone, Copy, PartialEq, Eq)]
enum Phase {
    #[default]
    Running,
    Stopping,
    Stopped,
}

impl BlobProducer {
    /// A producer without sources. Containers are not made: see
    /// [`BlobStore::ensure_container`](crate::store::BlobStore::ensure_container).
    ///
    /// # Panics
    /// Outside of a tokio runtime, on which blocks are staged.
    pub fn new(store: SharedStore, factory: SharedFactory, options: ProducerOptions) -> BlobProducer {
        let ProducerOptions { memory, uploads, max_open_blobs, telemetry } = options;
        let budget = Budget::new(memory);
        let stager =
            Stager::new(store.clone(), Handle::current(), uploads, budget.clone(), telemetry.clone());
        BlobProducer {
            store,
            stager,
            factory,
            claims: Claims::default(),
            room: Room::new(budget),
            max_open_blobs,
            telemetry,
            sources: Mutex::default(),
        }
    }

    /// Makes `source`, any text that is not empty, known. Also begins a source anew that has failed.
    ///
    /// # Errors
    /// [`Error::Source`] when the name is empty or registered already; [`Error::Stopped`] after `stop`.
    pub fn register(&self, source: &str) -> Result<(), Error> {
        let mut sources = self.sources();
        if sources.phase != Phase::Running {
            return Err(Error::Stopped);
        }
        if source.is_empty() {
            return Err(misuse(source, "has an empty name"));
        }
        if sources.by_name.get(source).is_some_and(|known| known.end() != Some(End::Failed)) {
            return Err(misuse(source, "is registered already"));
        }
        let name: Arc<str> = source.into();
        let metrics = self.telemetry.metrics.feed(source);
        sources.by_name.insert(name.clone(), Arc::new(Source::new(name, metrics, self.max_open_blobs)));
        Ok(())
    }

    /// Takes a record. It is in an open blob of its source when this returns, but not safe before a flush.
    ///
    /// Waits while the memory is used up by records that are not staged yet: tails of this source are staged early then,
    /// and those of others where that is not enough. A record larger than the whole memory passes when nothing else is
    /// on its way. Cancel safe: either the record is taken, or nothing has happened.
    ///
    /// # Errors
    /// [`Error::Record`] or a [`Error::Seal`] about the blob's name: this record is not taken, the source goes on. Any
    /// other [`Error::Seal`]: a block cannot be staged, the source has failed (see above). [`Error::Source`] when the
    /// source is not registered or has failed before; [`Error::Stopped`] after `stop`.
    pub async fn send(&self, source: &str, envelope: &Envelope) -> Result<(), Error> {
        let source = self.source(source)?;
        let mut state = source.lock().await?;
        match self.write(&source, &mut state, envelope).await {
            Ok(()) => Ok(()),
            Err(blobs::Error::BadRecord(reason)) => Err(Error::Record(reason)),
            Err(error @ blobs::Error::Name(_)) => Err(error.into()),
            Err(error) => Err(source.fail(&mut state, error.into())),
        }
    }

    /// Stages what is left of `source` and commits all its blobs. When this returns, every record sent before is in a
    /// blob that others can see; records sent later go to new blobs. Other sources are not touched. Without records since
    /// the last flush nothing happens.
    ///
    /// Waits as long as the store keeps failing in a way that may heal. Cancel safe: what a dropped future had begun is
    /// neither lost nor repeated, but goes on in the next `flush` or `stop`, whose result tells of it too.
    ///
    /// # Errors
    /// [`Error::NameTaken`], [`Error::BlocksGone`], [`Error::Store`], [`Error::Seal`]: the source has failed (see above).
    /// [`Error::Source`] when it is not registered or has failed before; [`Error::Stopped`] after `stop`.
    pub async fn flush(&self, source: &str) -> Result<Flushed, Error> {
        let source = self.source(source)?;
        let mut state = source.lock().await?;
        self.flush_locked(&source, &mut state).await
    }

    /// Flushes every source and ends the producer: every later call is [`Error::Stopped`], and so are the calls that
    /// wait for a source now. Cancel safe in that it may be called again, until it has returned once.
    ///
    /// # Errors
    /// [`Error::Source`] and what `flush` may say, within [`Error::Stop`], when a source cannot be flushed or had failed;
    /// the others are flushed all the same, and further failures are logged. [`Error::Stopped`] at the second call.
    pub async fn stop(&self) -> Result<Flushed, Error> {
        let all: Vec<Arc<Source>> = {
            let mut sources = self.sources();
            if sources.phase == Phase::Stopped {
                return Err(Error::Stopped);
            }
            sources.phase = Phase::Stopping;
            sources.by_name.values().cloned().collect()
        };
        let results = join_all(all.iter().map(|source| self.finish(source))).await;
        self.sources().phase = Phase::Stopped;
        let mut flushed = Flushed::default();
        let mut failure = None;
        for (source, result) in all.iter().zip(results) {
            match result {
                Ok(more) => flushed.blobs.extend(more.blobs),
                Err(error) => {
                    let name = source.name.to_string();
                    warn!(source = name, error = chain(&error), "source not flushed at the stop");
                    failure.get_or_insert(Error::Stop { name, source: Box::new(error) });
                }
            }
        }
        failure.map_or(Ok(flushed), Err)
    }

    /// The memory that the sources share, for figures.
    pub fn budget(&self) -> &Budget {
        self.stager.budget()
    }

    async fn finish(&self, source: &Source) -> Result<Flushed, Error> {
        let mut state = match source.lock().await {
            Ok(state) => state,
            // By a stop that was given up.
            Err(Error::Stopped) => return Ok(Flushed::default()),
            Err(error) => return Err(error),
        };
        let flushed = self.flush_locked(source, &mut state).await?;
        source.end_as(End::Stopped);
        Ok(flushed)
    }

    async fn write(
        &self,
        source: &Source,
        state: &mut State,
        envelope: &Envelope,
    ) -> Result<(), blobs::Error> {
        state.blobs.check()?;
        let bytes = envelope.record.bytes();
        self.room.make(bytes, &mut state.blobs, || self.relieve_another()).await?;
        let (ssp, record) = (&envelope.ssp, envelope.record.as_ref());
        let key = self.factory.output_key(ssp, &record)?;
        let place = state.place(ssp, key);
        let open = || {
            let budget = self.stager.budget();
            let new = blobs::NewBlob {
                source: &source.name,
                ssp,
                key,
                first: record,
                budget,
                claims: &self.claims,
            };
            let description = self.factory.describe(&new)?;
            Ok(blobs::BlobWriter::new(&self.stager, &source.metrics, description))
        };
        state.blobs.write(place, &record, open)?;
        source.metrics.records.inc();
        source.metrics.record_bytes.inc_by(bytes as u64);
        Ok(())
    }

    async fn flush_locked(&self, source: &Source, state: &mut State) -> Result<Flushed, Error> {
        match self.try_flush(source, state).await {
            Ok(()) => {
                let flushed = Flushed { blobs: std::mem::take(&mut state.committed) };
                if !flushed.blobs.is_empty() {
                    let (blobs, records) = (flushed.blobs.len(), flushed.records());
                    info!(source = %source.name, blobs, records, "source flushed");
                }
                Ok(flushed)
            }
            Err(error) => Err(source.fail(state, error)),
        }
    }

    async fn try_flush(&self, source: &Source, state: &mut State) -> Result<(), Error> {
        // What a flush began that nobody waited for.
        state.finish_commit().await?;
        let sealed = state.seal()?;
        if !sealed.is_empty() {
            state.begin_commit(&self.store, &self.telemetry, &source.metrics, sealed);
            state.finish_commit().await?;
        }
        Ok(())
    }

    // Stages the largest tail of all sources that are not in a call now; those that are relieve themselves.
    fn relieve_another(&self) -> bool {
        let all: Vec<Arc<Source>> = self.sources().by_name.values().cloned().collect();
        let idle = all.iter().filter_map(|source| Some((source, source.try_lock()?)));
        let largest: Option<(&Arc<Source>, AsyncGuard<'_, State>)> =
            idle.max_by_key(|(_, state)| state.blobs.largest_tail());
        let Some((source, mut state)) = largest else { return false };
        match cut(&mut state.blobs) {
            Ok(cut) => cut,
            Err(error) => {
                // Its own next call reports it.
                source.fail_later(&mut state, error.into());
                true
            }
        }
    }

    fn source(&self, name: &str) -> Result<Arc<Source>, Error> {
        let sources = self.sources();
        if sources.phase != Phase::Running {
            return Err(Error::Stopped);
        }
        sources.by_name.get(name).cloned().ok_or_else(|| misuse(name, "is not registered"))
    }

    fn sources(&self) -> MutexGuard<'_, Sources> {
        self.sources.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

pub(super) fn misuse(name: &str, reason: &'static str) -> Error {
    Error::Source { name: name.to_owned(), reason }
}
