//! What background tasks and the client report, and what it does to partitions.

use std::time::{Duration, Instant};

use tracing::{debug, error, warn};

use super::super::kafka;
use super::super::partition::{Partition, START_RETRY, State};
use super::super::position::{self, Position};
use super::super::schemas::SchemaFault;
use super::{Action, Lane, LaneEvent};
use crate::commit::{self, CommitEvent, Owner, PartitionCommitter};
use crate::error::{Class, chain};
use crate::model::{Offset, Slot};

impl Lane {
    /// Handles what background tasks have reported.
    pub(in crate::runtime) fn drain_events(&mut self, now: Instant) {
        while let Ok(event) = self.events.1.try_recv() {
            match event {
                LaneEvent::Resolved { slot, incarnation, position } => {
                    if self.is_current(slot, incarnation) {
                        self.resolved(slot, position, now);
                    }
                }
                LaneEvent::Schema { slot, id, fault } => self.schema_fetched(slot, id, fault, now),
            }
        }
        while let Ok(event) = self.commit_events.1.try_recv() {
            self.commit_event(event, now);
        }
    }

    /// A partition delivered an error instead of a record.
    pub(in crate::runtime) fn read_failed(&mut self, slot: Slot, error: &kafka::Error) {
        let Some(partition) = self.partitions.get_mut(slot) else { return };
        // `interrupted` has just been called for it.
        if !matches!(partition.state, State::Starting { .. }) {
            return;
        }
        let reason = format!("{} at offset {}: {}", partition.at, partition.next, chain(error));
        if error.class() == Class::BadData {
            self.fail(slot, reason);
            return;
        }
        partition.troubled = Some(Instant::now());
        if self.shared.telemetry.health.raise(&partition.source, reason.clone()) {
            warn!(source = partition.source, error = reason, "partition cannot be read for now");
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
        self.shared.telemetry.health.clear(&partition.source);
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
        if position.stored {
            self.begin(slot);
        }
    }

    // Sends the client to the partition's position, unless there is nothing to read for this run.
    fn begin(&mut self, slot: Slot) {
        let Some(partition) = self.partitions.get_mut(slot) else { return };
        if partition.end.is_some_and(|end| partition.next >= end) {
            partition.state = State::Ended;
        } else {
            partition.state = State::Starting { retry: Instant::now() + START_RETRY };
            self.actions.push(Action::Start(slot, partition.at.clone(), partition.next));
        }
    }

    fn is_current(&mut self, slot: Slot, incarnation: u32) -> bool {
        self.partitions.get_mut(slot).is_some_and(|partition| partition.incarnation == incarnation)
    }

    // Events of a committer that was dropped may still be in the queue.
    fn is_committer(&mut self, slot: Slot, committer: Owner) -> bool {
        let partition = self.partitions.get_mut(slot);
        partition.and_then(|p| p.committer.as_ref()).is_some_and(|c| c.number() == committer)
    }

    fn schema_fetched(&mut self, slot: Slot, id: u32, fault: Option<SchemaFault>, now: Instant) {
        let Some(partition) = self.partitions.get_mut(slot) else { return };
        if partition.state != (State::AwaitingSchema { id }) {
            return;
        }
        match fault {
            None => {
                partition.state = State::Starting { retry: now + START_RETRY };
                self.actions.push(Action::Start(slot, partition.at.clone(), partition.next));
            }
            Some(fault) => {
                let reason = bad_record(partition, partition.next, &fault.to_string());
                self.fail(slot, reason);
            }
        }
    }

    fn commit_event(&mut self, event: CommitEvent, now: Instant) {
        let (CommitEvent::Committed { slot, committer, .. }
        | CommitEvent::Persisted { slot, committer, .. }
        | CommitEvent::Failed { slot, committer, .. }) = &event;
        if !self.is_committer(*slot, *committer) {
            return;
        }
        match event {
            CommitEvent::Committed { slot, range, .. } => {
                let Some(partition) = self.partitions.get_mut(slot) else { return };
                partition.committing = partition.committing.saturating_sub(1);
                partition.committed = Some(range.next);
            }
            CommitEvent::Persisted { slot, next, .. } => {
                let Some(partition) = self.partitions.get_mut(slot) else { return };
                partition.persisted = Some(next);
                self.group_offsets.push((partition.at.clone(), next));
                if let Some(until_end) = &self.shared.until_end {
                    until_end.persisted(&partition.at, next);
                }
                if partition.state == State::Genesis {
                    self.begin(slot);
                }
            }
            CommitEvent::Failed { slot, error, .. } => self.commit_failed(slot, &error, now),
        }
    }

    /// A record was delivered where none should be. It is lost to the client, so everything not committed is read again.
    pub(in crate::runtime) fn stray(&mut self, slot: Slot) {
        let Some(partition) = self.partitions.get_mut(slot) else { return };
        if matches!(
            partition.state,
            State::Reading | State::Starting { .. } | State::AwaitingSchema { .. } | State::Ended
        ) {
            warn!(source = partition.source, "a record missed its lane; reading again from what is stored");
            self.begin_again(slot, Duration::ZERO);
        }
    }

    fn begin_again(&mut self, slot: Slot, wait: Duration) {
        let Some(partition) = self.partitions.get_mut(slot) else { return };
        partition.abandon();
        partition.state = State::Resolving;
        self.actions.push(Action::Pause(partition.at.clone()));
        self.resolve(slot, wait);
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
            // Cleared when the partition's position is known again.
            let reason = format!("somebody else seems to run this plan: {reason}");
            self.shared.telemetry.health.raise(&partition.source, reason);
        }
        self.begin_again(slot, wait);
    }

    pub(super) fn broken(&mut self, slot: Slot, class: Class, reason: String) {
        let Some(partition) = self.partitions.get_mut(slot) else { return };
        partition.abandon();
        debug!(?class, "partition broken");
        if !matches!(partition.state, State::Leaving { .. }) {
            let reason = format!("{}: {reason}", partition.at);
            self.fail(slot, reason);
        }
    }

    // Stops a partition. What it has read before is committed all the same.
    pub(super) fn fail(&mut self, slot: Slot, reason: String) {
        let Some(partition) = self.partitions.get_mut(slot) else { return };
        error!(source = partition.source, reason, "partition stopped");
        // Otherwise calm after an earlier trouble would clear the condition that is raised now.
        partition.troubled = None;
        self.shared.telemetry.health.raise(&partition.source, format!("stopped: {reason}"));
        if let Some(until_end) = &self.shared.until_end {
            until_end.failed(&partition.at, &reason);
        }
        partition.state = State::Failed { reason };
        self.actions.push(Action::Pause(partition.at.clone()));
        self.flush(slot);
    }

    pub(super) fn resolve(&mut self, slot: Slot, delay: Duration) {
        let Some(partition) = self.partitions.get_mut(slot) else { return };
        let (shared, events) = (self.shared.clone(), self.events.0.clone());
        let (key, at) = (partition.key.clone(), partition.at.clone());
        // Where this process has committed up to is a better answer than `start`, should the storage have lost its own.
        let (known, start) = (partition.committed, partition.target.feed.start);
        let incarnation = partition.incarnation;
        // A wait after a loss has been told already, with its reason.
        partition.resolving = delay.is_zero().then(Instant::now);
        // Ends by itself: with its answer, or with the lane, whose receiver it then misses.
        self.shared.runtime.spawn(async move {
            let work = async {
                tokio::time::sleep(delay).await;
                position::resolve(&shared, &key, &at, known, start).await
            };
            tokio::select! {
                position = work => { let _ = events.send(LaneEvent::Resolved { slot, incarnation, position }).await; }
                () = events.closed() => {}
            }
        });
    }

    pub(super) fn fetch_schema(&mut self, slot: Slot, id: u32) {
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

pub(super) fn bad_record(partition: &Partition, offset: Offset, reason: &str) -> String {
    format!("topic {} partition {} offset {offset}: {reason}", partition.at.topic, partition.at.partition)
}
