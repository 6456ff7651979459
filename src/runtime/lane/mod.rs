//! A lane: the partitions of a thread, and what happens to them.
//!
//! Owns: the partitions, their timers, what is to be done with the client (as [`Action`]s).
//! Does not own: the client itself.

mod events;
mod publish;

use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::sync::mpsc;
use tracing::{debug, info, warn};

use super::partition::{Partition, START_RETRY, State, Taken};
use super::position::{self, Position};
use super::relief::Relief;
use super::schemas::SchemaFault;
use super::slots::SlotTable;
use super::target::FeedTarget;
use super::{Shared, kafka};
use crate::budget::CHUNK;
use crate::commit::CommitEvent;
use crate::error::chain;
use crate::model::{Flow, Offset, RecordRef, RecordSink, Slot, TopicPartition};
use events::bad_record;

/// What a lane learns from tasks that it started.
pub(in crate::runtime) enum LaneEvent {
    Resolved { slot: Slot, incarnation: u32, position: Result<Position, position::Error> },
    Schema { slot: Slot, id: u32, fault: Option<SchemaFault> },
}

/// What is to be done with the client.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::runtime) enum Action {
    /// Stop delivery of a partition.
    Pause(TopicPartition),
    /// Deliver from an offset on.
    Start(Slot, TopicPartition, Offset),
}

/// How long a partition rests after an error before it is read on.
const AFTER_ERROR: Duration = Duration::from_secs(1);
/// How long a position may be looked up before it is told.
const SLOW_LOOK_UP: Duration = Duration::from_secs(2);
/// How long a start may fail before it is told.
const NOT_READY: Duration = Duration::from_secs(10);
/// How long a partition must report no error to count as well again.
const CALM: Duration = Duration::from_secs(15);

/// The partitions of one thread.
pub(in crate::runtime) struct Lane {
    shared: Arc<Shared>,
    feeds: Vec<Arc<FeedTarget>>,
    pub(in crate::runtime) partitions: SlotTable<Partition>,
    pub(in crate::runtime) relief: Relief,
    actions: Vec<Action>,
    commit_events: (mpsc::Sender<CommitEvent>, mpsc::Receiver<CommitEvent>),
    events: (mpsc::Sender<LaneEvent>, mpsc::Receiver<LaneEvent>),
    /// Offsets persisted since they were last told to the group.
    pub(in crate::runtime) group_offsets: Vec<(TopicPartition, Offset)>,
}

impl Lane {
    pub(in crate::runtime) fn new(shared: Arc<Shared>) -> Lane {
        let plan = &shared.plan;
        let target = |feed| Arc::new(FeedTarget::new(plan, feed, shared.telemetry.metrics.feed(&feed.name)));
        Lane {
            feeds: plan.feeds.iter().map(target).collect(),
            shared,
            partitions: SlotTable::new(),
            relief: Relief::default(),
            actions: Vec::new(),
            commit_events: mpsc::channel(1024),
            events: mpsc::channel(1024),
            group_offsets: Vec::new(),
        }
    }

    /// Takes a partition over and looks up where it begins.
    pub(in crate::runtime) fn assign(&mut self, at: TopicPartition) -> Option<Slot> {
        let feed = self.feeds.iter().find(|f| f.feed.topics.contains(&at.topic))?.clone();
        let slot = self.partitions.insert_with(|slot| Partition::new(slot, at.clone(), feed));
        let partition = self.partitions.get_mut(slot)?;
        partition.end = self.shared.until_end.as_ref().and_then(|u| u.end_of(&at));
        if let Some(until_end) = &self.shared.until_end {
            until_end.begun(&at);
        }
        info!(source = partition.source, partition = %at, "partition assigned");
        self.resolve(slot, Duration::ZERO);
        Some(slot)
    }

    /// Begins to give partitions up: what is read is sealed and finished, nothing more is taken.
    pub(in crate::runtime) fn leave(&mut self, slot: Slot, deadline: Instant) {
        let Some(partition) = self.partitions.get_mut(slot) else { return };
        if partition.state == State::Genesis {
            // Nothing is read: there is nothing to wait for.
            partition.abandon();
        }
        partition.state = State::Leaving { deadline };
        self.flush(slot);
    }

    /// Whether a partition that leaves has nothing left to do, or its deadline has passed.
    pub(in crate::runtime) fn may_be_released(&mut self, slot: Slot, now: Instant) -> bool {
        let Some(partition) = self.partitions.get_mut(slot) else { return true };
        let unresolved = partition.committer.is_none();
        if unresolved || partition.is_settled() {
            return true;
        }
        match partition.state {
            State::Leaving { deadline } => now >= deadline,
            _ => false,
        }
    }

    /// Forgets a partition. True when everything read of it was committed and persisted.
    pub(in crate::runtime) fn release(&mut self, slot: Slot) -> bool {
        let Some(partition) = self.partitions.remove(slot) else { return true };
        let settled = !partition.dropped && (partition.committer.is_none() || partition.is_settled());
        self.shared.telemetry.health.clear(&partition.source);
        self.shared.telemetry.status.remove(&partition.source);
        if settled {
            info!(source = partition.source, next = %partition.next, "partition given up, all committed");
        } else {
            warn!(
                source = partition.source,
                next = %partition.next,
                persisted = ?partition.persisted.map(Offset::get),
                "partition given up before all was committed; its records will be read again",
            );
        }
        settled
    }

    /// What is to be done with the client, once.
    pub(in crate::runtime) fn take_actions(&mut self) -> Vec<Action> {
        std::mem::take(&mut self.actions)
    }

    /// The client delivers from the partition's position now.
    pub(in crate::runtime) fn started(&mut self, slot: Slot, result: Result<(), kafka::Error>, now: Instant) {
        let Some(partition) = self.partitions.get_mut(slot) else { return };
        if !matches!(partition.state, State::Starting { .. }) {
            return;
        }
        match result {
            Ok(()) => {
                partition.state = State::Reading;
                partition.not_ready = None;
            }
            Err(error) => {
                let since = *partition.not_ready.get_or_insert(now);
                if now.duration_since(since) > NOT_READY {
                    partition.troubled = Some(now);
                    let reason = format!("the client is not ready to read it: {}", chain(&error));
                    self.shared.telemetry.health.raise(&partition.source, reason);
                }
                // Right after an assignment the client may not be ready for a seek.
                debug!(source = partition.source, error = chain(&error), "not ready to start, will retry");
                partition.state = State::Starting { retry: now + START_RETRY };
            }
        }
    }

    /// Looks after timers: flushes that are due, starts to be tried again.
    pub(in crate::runtime) fn tick(&mut self, now: Instant) {
        let due: Vec<Slot> = self.partitions.values().filter(|p| p.is_due(now)).map(|p| p.slot).collect();
        for slot in due {
            self.flush(slot);
        }
        let leaving: Vec<Slot> = self
            .partitions
            .values()
            .filter(|p| matches!(p.state, State::Leaving { .. } | State::Ended | State::Failed { .. }))
            .filter(|p| p.has_uncommitted())
            .map(|p| p.slot)
            .collect();
        for slot in leaving {
            self.flush(slot);
        }
        for partition in self.partitions.values_mut() {
            if partition.troubled.is_some_and(|since| now.duration_since(since) > CALM) {
                partition.troubled = None;
                self.shared.telemetry.health.clear(&partition.source);
            }
            if partition.state == State::Resolving
                && partition.resolving.is_some_and(|since| now.duration_since(since) > SLOW_LOOK_UP)
            {
                partition.resolving = None;
                let reason =
                    "where it begins is not known yet: the offset storage or the brokers have not answered";
                self.shared.telemetry.health.raise(&partition.source, reason);
            }
            if let State::Starting { retry } = partition.state
                && now >= retry
            {
                partition.state = State::Starting { retry: now + START_RETRY };
                self.actions.push(Action::Start(partition.slot, partition.at.clone(), partition.next));
            }
        }
    }

    /// Seals and commits what a partition has read. One whose commits do not get through reads on when they do.
    pub(in crate::runtime) fn flush(&mut self, slot: Slot) {
        let Some(partition) = self.partitions.get_mut(slot) else { return };
        match partition.flush() {
            Ok(true) if partition.state == State::Backlogged => {
                partition.state = State::Starting { retry: Instant::now() + START_RETRY };
                self.actions.push(Action::Start(slot, partition.at.clone(), partition.next));
            }
            Ok(false) if partition.state == State::Reading => {
                // Paused: what it reads would fill the memory that the other partitions need.
                debug!(source = partition.source, "commits wait for the store, paused");
                partition.state = State::Backlogged;
                self.actions.push(Action::Pause(partition.at.clone()));
            }
            Ok(_) => {}
            Err(error) => self.broken(slot, error.class(), chain(&error)),
        }
    }

    /// Cuts the largest tail of a partition early, to free memory.
    pub(in crate::runtime) fn cut_largest(&mut self, slot: Slot) {
        let Some(partition) = self.partitions.get_mut(slot) else { return };
        if let Err(error) = partition.blobs.cut_largest() {
            self.broken(slot, error.class(), chain(&error));
        }
    }
}

impl Drop for Lane {
    // A worker that ends by an error leaves nothing behind that would be taken for the present.
    fn drop(&mut self) {
        for partition in self.partitions.values() {
            self.shared.telemetry.health.clear(&partition.source);
            self.shared.telemetry.status.remove(&partition.source);
        }
    }
}

impl RecordSink for Lane {
    fn record(&mut self, slot: Slot, record: &RecordRef<'_>) -> Flow {
        let Some(partition) = self.partitions.get_mut(slot) else { return Flow::Continue };
        if !partition.takes(record.offset) {
            return Flow::Continue;
        }
        if partition.end.is_some_and(|end| record.offset >= end) {
            return self.end_partition(slot);
        }
        let bytes = record.value.map_or(0, <[u8]>::len) + CHUNK;
        if self.shared.budget.free() < bytes && !self.relief.may_pass() {
            self.relief.blocked();
            return Flow::Wait;
        }
        match partition.take(record, &self.shared) {
            Taken::Written => {
                self.relief.passed();
                if partition.troubled.take().is_some() {
                    self.shared.telemetry.health.clear(&partition.source);
                }
                if partition.end.is_some_and(|end| partition.next >= end) {
                    return self.end_partition(slot);
                }
            }
            Taken::UnknownSchema(id) => self.fetch_schema(slot, id),
            Taken::Bad(reason) => {
                let reason = bad_record(partition, record.offset, &reason);
                self.fail(slot, reason);
            }
            Taken::Broken(error) => self.broken(slot, error.class(), chain(&error)),
        }
        Flow::Continue
    }

    fn interrupted(&mut self, slot: Slot) {
        let Some(partition) = self.partitions.get_mut(slot) else { return };
        if partition.state == State::Reading {
            // Not at once: whatever is wrong would most likely be wrong again.
            partition.state = State::Starting { retry: Instant::now() + AFTER_ERROR };
        }
    }
}

impl Lane {
    /// Everything below `next` has been offered or is a hole, such as a transaction marker.
    pub(in crate::runtime) fn dequeued_to(&mut self, slot: Slot, next: Offset) {
        let Some(partition) = self.partitions.get_mut(slot) else { return };
        partition.skip_to(next);
        if partition.end.is_some_and(|end| partition.next >= end) {
            self.end_partition(slot);
        }
    }

    fn end_partition(&mut self, slot: Slot) -> Flow {
        if let Some(partition) = self.partitions.get_mut(slot)
            && partition.state == State::Reading
        {
            if let Some(end) = partition.end {
                partition.skip_to(end);
            }
            partition.state = State::Ended;
            self.actions.push(Action::Pause(partition.at.clone()));
            self.flush(slot);
        }
        Flow::Continue
    }
}
