//! Reads a lane's partitions in batches.

use std::collections::HashMap;
use std::time::Duration;

use crate::kafka::{Error, LaneQueue, MAX_BATCH, Polled, TopicHandle};
use crate::model::{Flow, RecordSink, Slot, TopicPartition};

/// Bytes of records that one batch should hold: dequeued messages are no longer counted by the client's prefetch limit.
const BATCH_BYTES: usize = 256 * 1024;

/// What one call of [`LaneReader::read`] did.
#[derive(Debug, Default)]
pub struct Read {
    /// Records that were offered and taken.
    pub records: usize,
    /// Whether the sink asked to wait; the record is offered again by the next call.
    pub blocked: bool,
    /// Partitions that cannot be read on.
    pub failures: Vec<(Slot, Error)>,
}

/// The reading end of a lane.
pub struct LaneReader {
    queue: LaneQueue,
    slots: HashMap<TopicPartition, Slot>,
    // Resolved once per topic handle, so that a record needs no look at its topic's name.
    handles: HashMap<(TopicHandle, i32), Slot>,
    last: Option<((TopicHandle, i32), Slot)>,
    record_bytes: usize,
}

impl LaneReader {
    /// Reads from `queue`.
    pub fn new(queue: LaneQueue) -> LaneReader {
        LaneReader { queue, slots: HashMap::new(), handles: HashMap::new(), last: None, record_bytes: 4096 }
    }

    /// Records of `partition` are offered under `slot` from now on. To be called before the partition is assigned.
    pub fn add(&mut self, partition: &TopicPartition, slot: Slot) {
        self.queue.forward(&partition.topic, partition.partition);
        self.slots.insert(partition.clone(), slot);
        self.forget_handles();
    }

    /// Drops what is dequeued of `partition` and not offered yet. To be called before the client is sent elsewhere in it: a
    /// record from before that must not be offered after it.
    pub fn discard(&mut self, partition: &TopicPartition) {
        self.queue.discard(&partition.topic, partition.partition);
    }

    /// Records of `partition` are no longer offered, also those dequeued already.
    pub fn remove(&mut self, partition: &TopicPartition) {
        self.discard(partition);
        self.slots.remove(partition);
        self.forget_handles();
    }

    /// The end of a partition's log as the client last heard of it.
    pub fn known_end(&self, partition: &TopicPartition) -> Option<crate::model::Offset> {
        self.queue.known_end(&partition.topic, partition.partition)
    }

    /// Whether dequeued messages wait to be offered.
    pub fn has_pending(&self) -> bool {
        self.queue.has_pending()
    }

    /// Offers one batch to `sink`: what is left of the last one, or a new one for which it waits at most `timeout`.
    pub fn read<S: RecordSink>(&mut self, sink: &mut S, timeout: Duration) -> Read {
        let mut read = Read::default();
        if !self.queue.has_pending() {
            let max = (BATCH_BYTES / self.record_bytes.max(1)).clamp(1, MAX_BATCH);
            self.queue.fill(max, timeout);
        }
        let mut bytes = 0;
        while let Some(slot) = self.next_slot() {
            let Some(polled) = self.queue.peek() else { break };
            match (slot, polled) {
                (Some(slot), Polled::Record(record)) => {
                    if sink.record(slot, &record) == Flow::Wait {
                        read.blocked = true;
                        break;
                    }
                    let len = record.key.map_or(0, <[u8]>::len) + record.value.map_or(0, <[u8]>::len);
                    bytes += len;
                    read.records += 1;
                }
                (Some(slot), Polled::Failed(code, text)) => {
                    sink.interrupted(slot);
                    if let Some(at) = self.partition_of(slot) {
                        read.failures.push((slot, Error::of_partition(&at, code, &text)));
                    }
                }
                // Given up meanwhile.
                (None, _) => {}
            }
            self.queue.advance();
        }
        if read.records > 0 && !read.blocked {
            // Slowly, so that one odd batch does not change the next one's size much.
            self.record_bytes = (self.record_bytes * 3 + bytes / read.records) / 4;
        }
        read
    }

    // The slot of the pending message: None when there is no message, Some(None) when it belongs to no slot.
    fn next_slot(&mut self) -> Option<Option<Slot>> {
        let handle = self.queue.peek_handle()?;
        if let Some((known, slot)) = self.last
            && known == handle
        {
            return Some(Some(slot));
        }
        let slot = match self.handles.get(&handle) {
            Some(slot) => Some(*slot),
            None => {
                let topic = self.queue.peek_topic();
                let at = topic.map(|topic| TopicPartition { topic: topic.into(), partition: handle.1 });
                let slot = at.and_then(|at| self.slots.get(&at).copied());
                if let Some(slot) = slot {
                    self.handles.insert(handle, slot);
                }
                slot
            }
        };
        self.last = slot.map(|slot| (handle, slot));
        Some(slot)
    }

    fn partition_of(&self, slot: Slot) -> Option<TopicPartition> {
        self.slots.iter().find(|(_, s)| **s == slot).map(|(partition, _)| partition.clone())
    }

    // A handle may be used again for another topic once its partitions are gone.
    fn forget_handles(&mut self) {
        self.handles.clear();
        self.last = None;
    }
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use super::*;
    use crate::kafka::embedded::{EmbeddedBroker, Producer};
    use crate::kafka::{ClientSettings, GroupConsumer, GroupEvent, client_config};
    use crate::model::{Offset, RecordRef};
    use crate::plan::Kafka;

    // Takes everything but the records of one slot, and that one's as well once it is told to.
    #[derive(Default)]
    struct Sink {
        waits: Option<Slot>,
        seen: Vec<(Slot, i64)>,
    }

    impl RecordSink for Sink {
        fn record(&mut self, slot: Slot, record: &RecordRef<'_>) -> Flow {
            if self.waits == Some(slot) {
                return Flow::Wait;
            }
            self.seen.push((slot, record.offset.get()));
            Flow::Continue
        }

        fn interrupted(&mut self, _: Slot) {}
    }

    fn until(what: &str, mut look: impl FnMut() -> bool) {
        let deadline = Instant::now() + Duration::from_secs(40);
        while !look() {
            assert!(Instant::now() < deadline, "{what} did not happen");
        }
    }

    #[test]
    fn what_waits_is_not_offered_after_a_seek() {
        let broker = EmbeddedBroker::start().unwrap();
        broker.create_topic("t", 2).unwrap();
        let producer = Producer::new(&broker.bootstrap_servers()).unwrap();
        let kafka = Kafka {
            bootstrap_servers: broker.bootstrap_servers(),
            group_id: "g".into(),
            workers: 1,
            commit_group_offsets: false,
            properties: std::collections::BTreeMap::new(),
        };
        let settings = ClientSettings { prefetch: 4 << 20, client_id: "test".into() };
        let consumer = GroupConsumer::new(&client_config(&kafka, &settings), &["t"]).unwrap();
        let mut reader = LaneReader::new(consumer.lane_queue());
        let mut assigned = Vec::new();
        until("an assignment", || {
            for event in consumer.poll().unwrap() {
                if let GroupEvent::Assigned(partitions) = event {
                    assigned = partitions;
                }
            }
            !assigned.is_empty()
        });
        assigned.sort();
        let (blocked, other) = (Slot(1), Slot(2));
        reader.add(&assigned[0], blocked);
        reader.add(&assigned[1], other);
        consumer.take(&assigned).unwrap();
        let positions: Vec<_> = assigned.iter().map(|p| (p.clone(), Offset::ZERO)).collect();
        until("the start", || consumer.start_at(&positions).iter().all(Result::is_ok));

        // One record that must wait, and behind it some of the other partition, in one batch.
        producer.send("t", 0, b"", b"waits").unwrap();
        producer.flush(Duration::from_secs(20)).unwrap();
        for n in 0_u8..200 {
            producer.send("t", 1, b"", &[n]).unwrap();
        }
        producer.flush(Duration::from_secs(20)).unwrap();
        let mut sink = Sink { waits: Some(blocked), ..Sink::default() };
        until("the wait", || reader.read(&mut sink, Duration::from_secs(5)).blocked);
        assert!(reader.has_pending());
        until("the seek", || {
            reader.discard(&assigned[1]);
            let back = [(assigned[1].clone(), Offset::ZERO)];
            consumer.start_at(&back)[0].is_ok()
        });
        sink.seen.clear();
        sink.waits = None;
        let of = |sink: &Sink, slot| -> Vec<i64> {
            sink.seen.iter().filter(|(s, _)| *s == slot).map(|(_, offset)| *offset).collect()
        };
        until("all records of both", || {
            reader.read(&mut sink, Duration::from_millis(50));
            of(&sink, blocked).len() == 1 && of(&sink, other).contains(&199)
        });
        assert_eq!(of(&sink, other), (0..200).collect::<Vec<_>>());
    }
}
