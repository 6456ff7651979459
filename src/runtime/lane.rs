//! A lane: the partitions of a thread, and what happens to them.
//!
//! Owns: the partitions, their timers, what is to be done with the client (as [`Action`]s).
//! Does not own: the client itself.

use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::sync::mpsc;
use tracing::{debug, error, info, warn};

use super::partition::{Partition, State, Taken};
use super::position::{self, Position};
use super::relief::Relief;
use super::schemas::SchemaFault;
use super::slots::SlotTable;
use super::target::FeedTarget;
use super::{Shared, kafka};
use crate::commit::{self, CommitEvent, PartitionCommitter};
use crate::error::{Class, chain};
use crate::model::{Flow, Offset, RecordRef, RecordSink, Slot, TopicPartition};
use crate::budget::CHUNK;

/// What a lane learns from tasks that it started.
pub(super) enum LaneEvent {
    Resolved { slot: Slot, position: Result<Position, position::Error> },
    Schema { slot: Slot, id: u32, fault: Option<SchemaFault> },
}

/// What is to be done with the client.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Action {
    /// Stop delivery of a partition.
    Pause(TopicPartition),
    /// Deliver from an offset on.
    Start(Slot, TopicPartition, Offset),
}

/// The partitions of one thread.
pub(super) struct Lane {
    shared: Arc<Shared>,
    feeds: Vec<Arc<FeedTarget>>,
    pub(super) partitions: SlotTable<Partition>,
    pub(super) relief: Relief,
    actions: Vec<Action>,
    commit_events: (mpsc::Sender<CommitEvent>, mpsc::Receiver<CommitEvent>),
    events: (mpsc::Sender<LaneEvent>, mpsc::Receiver<LaneEvent>),
    /// Offsets persisted since they were last told to the group.
    pub(super) group_offsets: Vec<(TopicPartition, Offset)>,
}

impl Lane {
    pub(super) fn new(shared: Arc<Shared>) -> Lane {
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
    pub(super) fn assign(&mut self, at: TopicPartition) -> Option<Slot> {
        let feed = self.feeds.iter().find(|f| f.feed.topics.contains(&at.topic))?.clone();
        let slot = self.partitions.insert_with(|slot| Partition::new(slot, at.clone(), feed));
        let partition = self.partitions.get_mut(slot)?;
        partition.end = self.shared.until_end.as_ref().and_then(|u| u.end_of(&at));
        info!(source = partition.source, partition = %at, "partition assigned");
        self.resolve(slot, Duration::ZERO);
        Some(slot)
    }

    /// Begins to give partitions up: what is read is sealed and finished, nothing more is taken.
    pub(super) fn leave(&mut self, slot: Slot, deadline: Instant) {
        let Some(partition) = self.partitions.get_mut(slot) else { return };
        partition.state = State::Leaving { deadline };
        self.flush(slot);
    }

    /// Whether a partition that leaves has nothing left to do, or its deadline has passed.
    pub(super) fn may_be_released(&mut self, slot: Slot, now: Instant) -> bool {
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
    pub(super) fn release(&mut self, slot: Slot) -> bool {
        let Some(partition) = self.partitions.remove(slot) else { return true };
        let settled = !partition.dropped && (partition.committer.is_none() || partition.is_settled());
        self.shared.commits.persister.forget(&partition.key);
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
    pub(super) fn take_actions(&mut self) -> Vec<Action> {
        std::mem::take(&mut self.actions)
    }

    /// The client delivers from the partition's position now.
    pub(super) fn started(&mut self, slot: Slot, result: Result<(), kafka::Error>, now: Instant) {
        let Some(partition) = self.partitions.get_mut(slot) else { return };
        if !matches!(partition.state, State::Starting { .. }) {
            return;
        }
        match result {
            Ok(()) => partition.state = State::Reading,
            Err(error) => {
                // Right after an assignment the client may not be ready for a seek.
                debug!(source = partition.source, error = chain(&error), "not ready to start, will retry");
                partition.state = State::Starting { not_before: now + Duration::from_millis(100) };
            }
        }
    }

    /// Handles what background tasks have reported.
    pub(super) fn drain_events(&mut self, now: Instant) {
        while let Ok(event) = self.events.1.try_recv() {
            match event {
                LaneEvent::Resolved { slot, position } => self.resolved(slot, position, now),
                LaneEvent::Schema { slot, id, fault } => self.schema_fetched(slot, id, fault, now),
            }
        }
        while let Ok(event) = self.commit_events.1.try_recv() {
            self.commit_event(event, now);
        }
    }

    /// Looks after timers: flushes that are due, starts to be tried again.
    pub(super) fn tick(&mut self, now: Instant) {
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
        for partition in self.partitions.values() {
            if let State::Starting { not_before } = partition.state
                && now >= not_before
            {
                self.actions.push(Action::Start(partition.slot, partition.at.clone(), partition.next));
            }
        }
    }

    /// A partition delivered an error instead of a record.
    pub(super) fn read_failed(&mut self, slot: Slot, error: &kafka::Error) {
        let Some(partition) = self.partitions.get_mut(slot) else { return };
        if partition.state != State::Reading {
            return;
        }
        let reason = format!("{} at offset {}: {}", partition.at, partition.next, chain(error));
        if error.class() == Class::BadData {
            self.fail(slot, reason);
            return;
        }
        partition.troubled = true;
        if self.shared.telemetry.health.raise(&partition.source, reason.clone()) {
            warn!(source = partition.source, error = reason, "partition cannot be read for now");
        }
    }

    /// Publishes figures and status.
    pub(super) fn publish(&self, now: Instant, known_end: impl Fn(&TopicPartition) -> Option<Offset>) {
        let mut waiting = 0;
        let mut failed = 0;
        let mut assigned = 0;
        let mut lags: Vec<(&Arc<FeedTarget>, i64)> = self.feeds.iter().map(|f| (f, 0)).collect();
        for partition in self.partitions.values() {
            assigned += 1;
            match partition.state {
                State::Failed { .. } => failed += 1,
                State::Resolving | State::AwaitingSchema { .. } => waiting += 1,
                _ => {}
            }
            if let (Some(end), Some(committed)) = (known_end(&partition.at), partition.committed)
                && let Some(lag) = lags.iter_mut().find(|(feed, _)| Arc::ptr_eq(feed, &partition.target))
            {
                lag.1 += (end.get() - committed.get()).max(0);
            }
            self.shared.telemetry.status.set(&partition.source, partition.status(now));
        }
        for (feed, lag) in lags {
            feed.metrics.lag.set(lag);
        }
        self.shared.telemetry.metrics.partitions(assigned, failed, waiting);
        self.shared.telemetry.metrics.memory(self.shared.budget.used(), self.shared.budget.limit());
    }

    /// Seals and commits what a partition has read.
    pub(super) fn flush(&mut self, slot: Slot) {
        let Some(partition) = self.partitions.get_mut(slot) else { return };
        if let Err(error) = partition.flush() {
            self.broken(slot, error.class(), chain(&error));
        }
    }

    /// Cuts the largest tail of a partition early, to free memory.
    pub(super) fn cut_largest(&mut self, slot: Slot) {
        let Some(partition) = self.partitions.get_mut(slot) else { return };
        if let Err(error) = partition.blobs.cut_largest() {
            self.broken(slot, error.class(), chain(&error));
        }
    }

    fn resolved(&mut self, slot: Slot, position: Result<Position, position::Error>, now: Instant) {
        let Some(partition) = self.partitions.get_mut(slot) else { return };
        if partition.state != State::Resolving {
            return;
        }
        let position = match position {
            Ok(position) => position,
            Err(error) => {
                let reason = format!("{}: {}", partition.at, chain(&error));
                return self.fail(slot, reason);
            }
        };
        partition.begin_at(position.offset, position.stored, now);
        partition.committer = Some(PartitionCommitter::start(
            &self.shared.runtime,
            self.shared.commits.clone(),
            slot,
            partition.key.clone(),
            (!position.stored).then_some(position.offset),
            self.commit_events.0.clone(),
        ));
        if let Some(until_end) = &self.shared.until_end
            && position.stored
        {
            until_end.persisted(&partition.at, position.offset);
        }
        if partition.end.is_some_and(|end| partition.next >= end) {
            partition.state = State::Ended;
        } else {
            self.actions.push(Action::Start(slot, partition.at.clone(), partition.next));
        }
    }

    fn schema_fetched(&mut self, slot: Slot, id: u32, fault: Option<SchemaFault>, now: Instant) {
        let Some(partition) = self.partitions.get_mut(slot) else { return };
        if partition.state != (State::AwaitingSchema { id }) {
            return;
        }
        match fault {
            None => {
                partition.state = State::Starting { not_before: now };
                self.actions.push(Action::Start(slot, partition.at.clone(), partition.next));
            }
            Some(fault) => {
                let reason = bad_record(partition, partition.next, &fault.to_string());
                self.fail(slot, reason);
            }
        }
    }

    fn commit_event(&mut self, event: CommitEvent, now: Instant) {
        match event {
            CommitEvent::Committed { slot, range } => {
                let Some(partition) = self.partitions.get_mut(slot) else { return };
                partition.committing = partition.committing.saturating_sub(1);
                partition.committed = Some(range.next);
            }
            CommitEvent::Persisted { slot, next } => {
                let Some(partition) = self.partitions.get_mut(slot) else { return };
                partition.persisted = Some(next);
                self.group_offsets.push((partition.at.clone(), next));
                if let Some(until_end) = &self.shared.until_end {
                    until_end.persisted(&partition.at, next);
                }
            }
            CommitEvent::Failed { slot, error } => self.commit_failed(slot, &error, now),
        }
    }

    fn commit_failed(&mut self, slot: Slot, error: &commit::Error, now: Instant) {
        let Some(partition) = self.partitions.get_mut(slot) else { return };
        let reason = chain(error);
        if error.class() != Class::Lost || matches!(partition.state, State::Leaving { .. }) {
            return self.broken(slot, error.class(), reason);
        }
        let wait = partition.wait_after_loss(now);
        warn!(
            source = partition.source,
            error = reason,
            ?wait,
            "somebody else moved this partition; dropping what is open and resuming from what is stored",
        );
        if !wait.is_zero() {
            let reason = format!("somebody else seems to run this plan: {reason}");
            self.shared.telemetry.health.raise(&partition.source, reason);
        }
        partition.abandon();
        self.shared.commits.persister.forget(&partition.key);
        partition.state = State::Resolving;
        self.actions.push(Action::Pause(partition.at.clone()));
        self.resolve(slot, wait);
    }

    fn broken(&mut self, slot: Slot, class: Class, reason: String) {
        let Some(partition) = self.partitions.get_mut(slot) else { return };
        partition.abandon();
        debug!(?class, "partition broken");
        if !matches!(partition.state, State::Leaving { .. }) {
            let reason = format!("{}: {reason}", partition.at);
            self.fail(slot, reason);
        }
    }

    // Stops a partition. What it has read before is committed all the same.
    fn fail(&mut self, slot: Slot, reason: String) {
        let Some(partition) = self.partitions.get_mut(slot) else { return };
        error!(source = partition.source, reason, "partition stopped");
        self.shared.telemetry.health.raise(&partition.source, format!("stopped: {reason}"));
        if let Some(until_end) = &self.shared.until_end {
            until_end.failed(&partition.at, &reason);
        }
        partition.state = State::Failed { reason };
        self.actions.push(Action::Pause(partition.at.clone()));
        self.flush(slot);
    }

    fn resolve(&mut self, slot: Slot, delay: Duration) {
        let Some(partition) = self.partitions.get_mut(slot) else { return };
        let (shared, events) = (self.shared.clone(), self.events.0.clone());
        let (key, at, start) = (partition.key.clone(), partition.at.clone(), partition.target.feed.start);
        // Ends by itself: with its answer, or with the lane, whose receiver it then misses.
        self.shared.runtime.spawn(async move {
            let work = async {
                tokio::time::sleep(delay).await;
                position::resolve(&shared, &key, &at, start).await
            };
            tokio::select! {
                position = work => { let _ = events.send(LaneEvent::Resolved { slot, position }).await; }
                () = events.closed() => {}
            }
        });
    }

    fn fetch_schema(&mut self, slot: Slot, id: u32) {
        let Some(partition) = self.partitions.get_mut(slot) else { return };
        partition.state = State::AwaitingSchema { id };
        self.actions.push(Action::Pause(partition.at.clone()));
        let (shared, events) = (self.shared.clone(), self.events.0.clone());
        self.shared.runtime.spawn(async move {
            tokio::select! {
                fetched = shared.schemas.fetch(id) => {
                    let fault = fetched.err();
                    let _ = events.send(LaneEvent::Schema { slot, id, fault }).await;
                }
                () = events.closed() => {}
            }
        });
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
                if partition.troubled {
                    partition.troubled = false;
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

    fn reached_end(&mut self, slot: Slot, next: Offset) {
        let Some(partition) = self.partitions.get_mut(slot) else { return };
        partition.skip_to(next);
        if partition.troubled {
            partition.troubled = false;
            self.shared.telemetry.health.clear(&partition.source);
        }
        if partition.end.is_some_and(|end| partition.next >= end) {
            self.end_partition(slot);
        }
    }
}

impl Lane {
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

fn bad_record(partition: &Partition, offset: Offset, reason: &str) -> String {
    format!("topic {} partition {} offset {offset}: {reason}", partition.at.topic, partition.at.partition)
}
