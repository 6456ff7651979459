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

    /// Records of `partition` are no longer offered, also those dequeued already.
    pub fn remove(&mut self, partition: &TopicPartition) {
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
