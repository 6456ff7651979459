//! A worker: one member of the consumer group, with its event thread, which is also its lane.
//!
//! Owns: the loop that serves the group, reads, and drains at the end.
//! Does not own: what happens to records and partitions (see [`super::lane`]).

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant, SystemTime};

use tracing::{debug, info, warn};

use super::lane::{Action, Lane};
use super::relief::relieve;
use super::trouble::Trouble;
use super::{Error, Shared, kafka};
use crate::error::chain;
use crate::feed::LaneReader;
use crate::kafka::{ClientSettings, GroupConsumer, GroupEvent, client_config};
use crate::model::{GroupOffsets, Offset, Slot, TopicPartition};

/// How long a batch may take to fill; also the pause of an idle lane.
const BATCH_WAIT: Duration = Duration::from_millis(50);
/// How often timers are looked at.
const TICK: Duration = Duration::from_millis(50);
/// How often status is published.
const PUBLISH: Duration = Duration::from_secs(1);
/// How often the group's own offsets are committed.
const GROUP_COMMIT: Duration = Duration::from_secs(5);

/// How long leaving the group may take, and ending the client.
const LEAVING: Duration = Duration::from_secs(3);

/// What a worker is told from outside.
#[derive(Default)]
pub(super) struct Orders {
    /// Finish what is read, then end.
    pub(super) drain: AtomicBool,
}

/// One worker; lives on its own thread.
pub(super) struct Worker {
    number: usize,
    shared: Arc<Shared>,
    orders: Arc<Orders>,
    consumer: GroupConsumer,
    reader: LaneReader,
    lane: Lane,
    slots: HashMap<TopicPartition, Slot>,
    leaving: Vec<(Vec<TopicPartition>, Instant)>,
    group: Arc<dyn GroupOffsets>,
    joined: bool,
    trouble: Trouble,
    pending_group: HashMap<TopicPartition, Offset>,
}

impl Worker {
    pub(super) fn new(
        shared: Arc<Shared>,
        orders: Arc<Orders>,
        number: usize,
        prefetch: usize,
    ) -> Result<Worker, kafka::Error> {
        let plan = &shared.plan;
        let client_id = format!("blobfeed-{}-{number}", plan.name);
        let config = client_config(&plan.kafka, &ClientSettings { prefetch, client_id });
        let topics: Vec<&str> = plan.feeds.iter().flat_map(|f| f.topics.iter().map(|t| &**t)).collect();
        let consumer = GroupConsumer::new(&config, &topics)?;
        Ok(Worker {
            number,
            reader: LaneReader::new(consumer.lane_queue()),
            group: consumer.group_offsets(),
            lane: Lane::new(shared.clone()),
            consumer,
            shared,
            orders,
            slots: HashMap::new(),
            leaving: Vec::new(),
            joined: false,
            trouble: Trouble::default(),
            pending_group: HashMap::new(),
        })
    }

    /// Runs until told to drain. The number of partitions whose records were not all committed in time.
    pub(super) fn run(mut self) -> Result<usize, Error> {
        let result = self.work();
        self.retire();
        result
    }

    fn work(&mut self) -> Result<usize, Error> {
        let (mut ticked, mut published, mut told) = (Instant::now(), Instant::now(), Instant::now());
        while !self.orders.drain.load(Ordering::Acquire) {
            let now = Instant::now();
            self.serve_group(now)?;
            self.lane.drain_events(now);
            if now.duration_since(ticked) >= TICK {
                ticked = now;
                self.lane.tick(now);
                self.release_settled(now);
            }
            if now.duration_since(published) >= PUBLISH {
                published = now;
                self.publish(now);
            }
            if now.duration_since(told) >= GROUP_COMMIT {
                told = now;
                self.tell_group();
            }
            relieve(&mut self.lane, &self.shared.budget);
            self.act(now);
            self.read();
        }
        self.drain()
    }

    fn serve_group(&mut self, now: Instant) -> Result<(), Error> {
        for event in self.consumer.poll()? {
            match event {
                GroupEvent::Assigned(partitions) => self.assigned(&partitions),
                GroupEvent::Revoked { partitions, lost } => self.revoked(partitions, lost, now),
                GroupEvent::Stray(partition) => {
                    if let Some(slot) = self.slots.get(&partition) {
                        self.lane.stray(*slot);
                    }
                }
            }
        }
        self.shared.telemetry.metrics.polled(self.number, SystemTime::now());
        Ok(())
    }

    fn assigned(&mut self, partitions: &[TopicPartition]) {
        if !self.joined {
            self.joined = true;
            self.shared.telemetry.health.clear("starting");
        }
        self.trouble.end(&self.shared);
        self.shared.telemetry.health.clear(&self.group_subject());
        info!(count = partitions.len(), "partitions assigned by the group");
        for partition in partitions {
            // A member that was slow to hear of a lost assignment may get back what it still holds.
            if let Some(slot) = self.slots.remove(partition) {
                self.reader.remove(partition);
                self.lane.release(slot);
            }
            if let Some(slot) = self.lane.assign(partition.clone()) {
                self.reader.add(partition, slot);
                self.slots.insert(partition.clone(), slot);
            }
        }
        if let Err(error) = self.consumer.take(partitions) {
            // The group has changed its mind meanwhile and says so by another event.
            warn!(error = chain(&error), "assigned partitions could not be taken");
        }
    }

    fn group_subject(&self) -> String {
        if self.shared.plan.kafka.workers > 1 {
            format!("group (worker {})", self.number)
        } else {
            "group".to_owned()
        }
    }

    fn revoked(&mut self, partitions: Vec<TopicPartition>, lost: bool, now: Instant) {
        info!(count = partitions.len(), lost, "partitions revoked by the group");
        if lost {
            let reason =
                "the group has taken all partitions away: the session timed out, or the poll interval passed";
            self.shared.telemetry.health.raise(&self.group_subject(), reason);
        }
        // Lost ones may be with another member already: whatever is still under way is dropped at once.
        let deadline = if lost { now } else { now + self.shared.plan.deadlines.revoke };
        for partition in &partitions {
            if let Some(slot) = self.slots.get(partition).filter(|_| !lost) {
                self.lane.leave(*slot, deadline);
            }
        }
        self.leaving.push((partitions, deadline));
        self.release_settled(now);
    }

    // Gives up revoked partitions as soon as all of one event are settled, or their time is over.
    fn release_settled(&mut self, now: Instant) {
        let leaving = std::mem::take(&mut self.leaving);
        for (partitions, deadline) in leaving {
            let ready = now >= deadline
                || partitions
                    .iter()
                    .all(|p| self.slots.get(p).is_none_or(|slot| self.lane.may_be_released(*slot, now)));
            if !ready {
                self.leaving.push((partitions, deadline));
                continue;
            }
            self.collect_group_offsets();
            self.tell_group();
            for partition in &partitions {
                if let Some(slot) = self.slots.remove(partition) {
                    self.reader.remove(partition);
                    self.lane.release(slot);
                }
                self.pending_group.remove(partition);
            }
            if let Err(error) = self.consumer.release(&partitions) {
                warn!(error = chain(&error), "revoked partitions could not be given up");
            }
        }
    }

    fn act(&mut self, now: Instant) {
        let (mut slots, mut positions) = (Vec::new(), Vec::new());
        for action in self.lane.take_actions() {
            match action {
                Action::Pause(partition) => {
                    if let Err(error) = self.consumer.pause(&partition) {
                        // Harmless: what it delivers is ignored.
                        debug!(%partition, error = chain(&error), "not paused");
                    }
                }
                Action::Start(slot, partition, offset) => {
                    slots.push(slot);
                    positions.push((partition, offset));
                }
            }
        }
        if positions.is_empty() {
            return;
        }
        // Nothing that was dequeued before the seek may be taken after it.
        for (partition, _) in &positions {
            self.reader.discard(partition);
        }
        for (slot, result) in slots.into_iter().zip(self.consumer.start_at(&positions)) {
            self.lane.started(slot, result, now);
        }
    }

    fn read(&mut self) {
        if self.lane.relief.is_blocked() {
            // The record is offered again; give the store time to take what is in flight.
            std::thread::sleep(Duration::from_millis(5));
        }
        self.lane.relief.begin();
        let read = self.reader.read(&mut self.lane, BATCH_WAIT);
        for (slot, error) in read.failures {
            self.lane.read_failed(slot, &error);
        }
    }

    fn publish(&mut self, now: Instant) {
        // Transaction markers at the end of a log are dequeued and never offered: without this they would be lag for ever.
        if !self.reader.has_pending() {
            for (partition, next) in self.consumer.positions() {
                if let Some(slot) = self.slots.get(&partition) {
                    self.lane.dequeued_to(*slot, next);
                }
            }
        }
        let reader = &self.reader;
        self.lane.publish(now, |partition| reader.known_end(partition));
        if let Some(error) = self.consumer.take_last_error() {
            self.trouble.begin(&self.shared, &error);
        } else {
            self.trouble.look(&self.shared);
        }
    }

    fn collect_group_offsets(&mut self) {
        self.pending_group.extend(self.lane.group_offsets.drain(..));
    }

    fn tell_group(&mut self) {
        self.collect_group_offsets();
        if self.pending_group.is_empty() || !self.shared.plan.kafka.commit_group_offsets {
            self.pending_group.clear();
            return;
        }
        let positions: Vec<_> = self.pending_group.drain().collect();
        self.group.commit_group_offsets(&positions);
    }

    fn drain(&mut self) -> Result<usize, Error> {
        let deadline = Instant::now() + self.shared.plan.deadlines.shutdown;
        info!(partitions = self.slots.len(), "draining: everything read is being committed");
        for slot in self.slots.values() {
            self.lane.leave(*slot, deadline);
        }
        let reader = &self.reader;
        self.lane.publish(Instant::now(), |partition| reader.known_end(partition));
        loop {
            let now = Instant::now();
            // The membership is kept until the end, so that nobody reads these partitions meanwhile.
            for event in self.consumer.poll()? {
                match event {
                    GroupEvent::Revoked { partitions, lost } => {
                        self.revoked(partitions, lost, now);
                        for (_, until) in &mut self.leaving {
                            *until = deadline.min(*until);
                        }
                    }
                    other => self.decline(&other),
                }
            }
            self.lane.drain_events(now);
            self.lane.tick(now);
            self.release_settled(now);
            let lane = &mut self.lane;
            if self.slots.values().all(|slot| lane.may_be_released(*slot, now)) {
                break;
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        self.tell_group();
        let slots = std::mem::take(&mut self.slots);
        let unfinished = slots.into_values().filter(|slot| !self.lane.release(*slot)).count();
        self.leave_group(deadline)?;
        Ok(unfinished)
    }

    // Partitions that arrive while nothing is read any more. The client waits for the answer all the same, and would do so
    // for ever; they stay paused until they are revoked.
    fn decline(&self, event: &GroupEvent) {
        if let GroupEvent::Assigned(partitions) = event
            && let Err(error) = self.consumer.take(partitions)
        {
            debug!(error = chain(&error), "assigned partitions could not be taken");
        }
    }

    // Leaving in good order spares the others the session time-out.
    fn leave_group(&mut self, deadline: Instant) -> Result<(), Error> {
        let limit = deadline.max(Instant::now()).min(Instant::now() + LEAVING);
        let idle = self.consumer.is_idle();
        self.consumer.leave();
        while !idle && Instant::now() < limit {
            for event in self.consumer.poll()? {
                match event {
                    GroupEvent::Revoked { partitions, .. } => {
                        let _ = self.consumer.release(&partitions);
                    }
                    other => self.decline(&other),
                }
            }
            if self.consumer.is_idle() {
                break;
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        Ok(())
    }

    // Drops the client, which says good-bye to the brokers. With brokers that are gone that can take its time: it is not
    // waited for any longer than a moment.
    fn retire(self) {
        let (dropped, wait) = std::sync::mpsc::channel();
        let drop_it = move || {
            drop(self);
            let _ = dropped.send(());
        };
        let started = std::thread::Builder::new().name("retire".to_owned()).spawn(drop_it).is_ok();
        if started && wait.recv_timeout(LEAVING).is_err() {
            warn!("the kafka client does not end in time; leaving it behind");
        }
    }
}
