//! One assigned partition on its lane.
//!
//! Owns: its position, its open blobs, its state.
//! Does not own: the client; whoever drives the lane pauses, seeks and releases.

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::Shared;
use super::target::FeedTarget;
use crate::commit::{Commit, PartitionCommitter};
use crate::format::avro::AvroSchema;
use crate::format::{BadRecord, confluent};
use crate::model::{FeedPartitionKey, Offset, OffsetRange, RecordRef, Slot, Ssp, TopicPartition};
use crate::producer::{self, OpenBlobs, OutputKey};
use crate::telemetry::{PartitionState, PartitionStatus};

/// How long after a failed start the next one is tried.
pub(super) const START_RETRY: Duration = Duration::from_millis(100);

/// Where a partition is in its life.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum State {
    /// The position is being looked up; records that arrive are not ours to write.
    Resolving,
    /// Nothing was persisted, and where it begins is being persisted now: what is read before that could be skipped by the
    /// next look-up of `start`.
    Genesis,
    /// The position is known, and the client is being sent there; if that fails, it is tried again at `retry`. Who sets
    /// this state asks for the first try: two in one round would be one too many for the client.
    Starting { retry: Instant },
    /// Records are taken.
    Reading,
    /// As many commits wait for the store as may; the client is paused.
    Backlogged,
    /// A schema is being fetched; the client is paused.
    AwaitingSchema { id: u32 },
    /// The end that `--until-end` asked for is reached.
    Ended,
    /// It stopped and needs a person.
    Failed { reason: String },
    /// It is being given up: nothing is taken any more, what is sealed is finished until the deadline.
    Leaving { deadline: Instant },
}

/// What came of offering a record.
#[derive(Debug)]
pub(super) enum Taken {
    /// It is in an open blob.
    Written,
    /// Its schema has to be fetched first.
    UnknownSchema(u32),
    /// It cannot be written; the partition stops before it.
    Bad(String),
    /// The blob cannot be written any more.
    Broken(producer::Error),
}

/// An assigned partition.
pub(super) struct Partition {
    pub(super) slot: Slot,
    pub(super) at: TopicPartition,
    pub(super) key: FeedPartitionKey,
    pub(super) source: String,
    pub(super) target: Arc<FeedTarget>,
    pub(super) state: State,
    /// The next offset to take.
    pub(super) next: Offset,
    /// First offset of the commit in the making.
    first: Offset,
    /// Since when something waits to be committed.
    pub(super) since: Option<Instant>,
    pub(super) blobs: OpenBlobs,
    pub(super) committer: Option<PartitionCommitter>,
    /// Commits handed over and not reported done.
    pub(super) committing: usize,
    pub(super) committed: Option<Offset>,
    pub(super) persisted: Option<Offset>,
    /// Where `--until-end` ends.
    pub(super) end: Option<Offset>,
    /// Counts the look-ups of the position: answers to earlier ones are late.
    pub(super) incarnation: u32,
    /// Since when the position is being looked up, as long as nobody was told.
    pub(super) resolving: Option<Instant>,
    /// Since when the client could not be sent to the position.
    pub(super) not_ready: Option<Instant>,
    /// Whether something was read and given up since the position was last resolved.
    pub(super) dropped: bool,
    /// When the broker last reported an error instead of a record.
    pub(super) troubled: Option<Instant>,
    losses: u32,
    last_loss: Option<Instant>,
    ssp: Ssp,
    schemas: Vec<(u32, Arc<AvroSchema>)>,
}

impl Partition {
    pub(super) fn new(slot: Slot, at: TopicPartition, target: Arc<FeedTarget>) -> Partition {
        let key = target.key(&at);
        let ssp = target.ssp(&at);
        let max_open = target.feed.flush.max_open_blobs;
        Partition {
            slot,
            source: key.source(),
            key,
            ssp,
            at,
            target,
            state: State::Resolving,
            next: Offset::ZERO,
            first: Offset::ZERO,
            since: None,
            blobs: OpenBlobs::new(max_open),
            committer: None,
            committing: 0,
            committed: None,
            persisted: None,
            end: None,
            incarnation: 0,
            resolving: None,
            not_ready: None,
            dropped: false,
            troubled: None,
            losses: 0,
            last_loss: None,
            schemas: Vec::new(),
        }
    }

    /// Begins at `offset`: nothing before it is ours to write.
    pub(super) fn begin_at(&mut self, offset: Offset, stored: bool, now: Instant) {
        self.next = offset;
        self.first = offset;
        self.committed = Some(offset);
        self.persisted = stored.then_some(offset);
        self.since = None;
        self.dropped = false;
        self.not_ready = None;
        self.state = if stored { State::Starting { retry: now + START_RETRY } } else { State::Genesis };
    }

    /// Writes a record that the partition takes.
    pub(super) fn take(&mut self, record: &RecordRef<'_>, shared: &Shared) -> Taken {
        let bad = |reason: &BadRecord| Taken::Bad(reason.to_string());
        let Some(value) = record.value else {
            return Taken::Bad("its value is null, and an avro container has no place for that".to_owned());
        };
        let id = match confluent::split(value) {
            Ok((id, _)) => id,
            Err(reason) => return bad(&reason),
        };
        let at_hand = match self.schemas.iter().position(|(known, _)| *known == id) {
            Some(index) => index,
            None => match shared.schemas.known(id) {
                Some(schema) => {
                    self.schemas.push((id, schema));
                    self.schemas.len() - 1
                }
                None => return Taken::UnknownSchema(id),
            },
        };
        let schema = &self.schemas[at_hand].1;
        let (target, at, ssp) = (&self.target, &self.at, &self.ssp);
        let open = || target.open(shared, at, ssp, schema, record.offset);
        match self.blobs.write(OutputKey(id), record, open) {
            Ok(()) => {
                // Compaction and transactions leave holes; elsewhere there are none.
                let gap = record.offset.get() - self.next.get();
                if gap > 0 {
                    self.target.metrics.gaps.inc_by(gap.unsigned_abs());
                }
                self.next = record.offset.following();
                self.since.get_or_insert_with(Instant::now);
                self.target.metrics.records.inc();
                let bytes = value.len() + record.key.map_or(0, <[u8]>::len);
                self.target.metrics.record_bytes.inc_by(bytes as u64);
                Taken::Written
            }
            Err(producer::Error::BadRecord(reason)) => bad(&reason),
            Err(error) => Taken::Broken(error),
        }
    }

    /// Whether the record at `offset` is to be taken now. What was taken before is not taken again.
    pub(super) fn takes(&self, offset: Offset) -> bool {
        self.state == State::Reading && offset >= self.next
    }

    /// Moves the position over a hole: offsets up to `next` hold no record.
    pub(super) fn skip_to(&mut self, next: Offset) {
        if self.state == State::Reading && next > self.next {
            self.next = next;
            self.since.get_or_insert_with(Instant::now);
        }
    }

    /// Whether something is read that no commit covers.
    pub(super) fn has_uncommitted(&self) -> bool {
        self.next > self.first
    }

    /// Whether everything read is committed and the offset behind it is persisted.
    pub(super) fn is_settled(&self) -> bool {
        !self.has_uncommitted() && self.committing == 0 && self.persisted.is_some_and(|p| p >= self.first)
    }

    /// Whether a flush is due by time or size.
    pub(super) fn is_due(&self, now: Instant) -> bool {
        let flush = &self.target.feed.flush;
        let old = self.since.is_some_and(|since| now.duration_since(since) >= flush.interval);
        old || self.blobs.bytes() >= flush.max_commit_size
    }

    /// Seals all open blobs and hands them over as one commit. False when the commits before it are not far enough; then
    /// nothing has happened.
    pub(super) fn flush(&mut self) -> Result<bool, producer::Error> {
        if !self.has_uncommitted() {
            return Ok(true);
        }
        let Some(committer) = self.committer.as_ref().filter(|c| c.has_room()) else { return Ok(false) };
        let blobs = self.blobs.seal_all()?;
        let range = OffsetRange { first: self.first, next: self.next };
        // There is room, and this lane is the only one that submits.
        if committer.submit(Commit { range, blobs }).is_ok() {
            self.committing += 1;
            self.first = self.next;
            self.since = None;
            return Ok(true);
        }
        Err(producer::Error::Interrupted)
    }

    /// Drops everything that is not committed; the partition has to be resolved again.
    pub(super) fn abandon(&mut self) {
        self.incarnation = self.incarnation.wrapping_add(1);
        self.dropped |= self.has_uncommitted() || self.committing > 0;
        self.blobs.abandon();
        self.committer = None;
        self.committing = 0;
        self.first = self.next;
        self.since = None;
    }

    /// How long to wait before beginning again after a loss: the second within a minute waits 30 s, doubling to 10 min.
    pub(super) fn wait_after_loss(&mut self, now: Instant) -> Duration {
        let again = self.last_loss.is_some_and(|last| now.duration_since(last) < Duration::from_secs(660));
        self.losses = if again { self.losses + 1 } else { 1 };
        self.last_loss = Some(now);
        match self.losses {
            0 | 1 => Duration::ZERO,
            n => Duration::from_secs((30_u64 << (n - 2).min(5)).min(600)),
        }
    }

    pub(super) fn status(&self, now: Instant) -> PartitionStatus {
        PartitionStatus {
            feed: self.target.feed.name.to_string(),
            topic: self.at.topic.to_string(),
            partition: self.at.partition,
            target: self.ssp.to_string(),
            state: match &self.state {
                State::Resolving => PartitionState::Resolving,
                State::Genesis => {
                    PartitionState::Waiting("the offset where it begins is being persisted".to_owned())
                }
                State::Backlogged => PartitionState::Waiting("its commits wait for the store".to_owned()),
                State::Starting { .. } if self.not_ready.is_some() => {
                    PartitionState::Waiting("the client is not ready to read it".to_owned())
                }
                State::Starting { .. } | State::Reading => PartitionState::Reading,
                State::AwaitingSchema { id } => {
                    PartitionState::Waiting(format!("schema {id} is being fetched"))
                }
                State::Ended => PartitionState::Waiting("the end asked for is reached".to_owned()),
                State::Failed { reason } => PartitionState::Failed(reason.clone()),
                State::Leaving { .. } => PartitionState::Leaving,
            },
            position: (self.state != State::Resolving).then(|| self.next.get()),
            committed: self.committed.map(Offset::get),
            persisted: self.persisted.map(Offset::get),
            lag: None,
            uncommitted_records: self.blobs.records(),
            open_blobs: self.blobs.open_count(),
            oldest_uncommitted_seconds: self.since.map(|since| now.duration_since(since).as_secs()),
        }
    }
}
