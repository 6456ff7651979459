//! Records as Kafka gave them, and the seam by which they reach whoever writes them.

use super::{Offset, TopicPartition};

/// What a record's timestamp means.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TimestampKind {
    /// Set by the producer.
    Create,
    /// Set by the broker on arrival.
    LogAppend,
}

/// A record's timestamp.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Timestamp {
    /// Milliseconds since 1970-01-01T00:00:00Z.
    pub millis: i64,
    /// Who set it.
    pub kind: TimestampKind,
}

/// A record's headers: names may repeat, values may be null.
pub trait HeaderList {
    /// The header at `index`, in the order of the record; `None` behind the last.
    fn header(&self, index: usize) -> Option<(&str, Option<&[u8]>)>;
}

impl HeaderList for Vec<(String, Option<Vec<u8>>)> {
    fn header(&self, index: usize) -> Option<(&str, Option<&[u8]>)> {
        self.get(index).map(|(name, value)| (name.as_str(), value.as_deref()))
    }
}

/// One record, borrowed from the client's fetch buffer for the time of a call.
#[derive(Clone, Copy)]
pub struct RecordRef<'a> {
    /// Its offset in the partition.
    pub offset: Offset,
    /// Absent where the message format has none.
    pub timestamp: Option<Timestamp>,
    /// The key; `None` is Kafka's null.
    pub key: Option<&'a [u8]>,
    /// The value; `None` is Kafka's null, a tombstone in compacted topics.
    pub value: Option<&'a [u8]>,
    /// The headers, read only by formats that keep them.
    pub headers: Option<&'a dyn HeaderList>,
}

impl std::fmt::Debug for RecordRef<'_> {
    // Sizes only: payloads may be personal data, and Debug output ends in logs.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RecordRef")
            .field("offset", &self.offset)
            .field("timestamp", &self.timestamp)
            .field("key_bytes", &self.key.map(<[u8]>::len))
            .field("value_bytes", &self.value.map(<[u8]>::len))
            .finish_non_exhaustive()
    }
}

/// A number that stands for an assigned partition on one lane; never used again after a revoke.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Slot(pub u64);

/// Whether a sink wants more.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Flow {
    /// The record was taken (or its partition does not take any now); go on.
    Continue,
    /// The record was NOT taken: offer the same one again later, and dequeue nothing until then.
    Wait,
}

/// Takes the records of assigned partitions. The feed calls it, the runtime implements it.
pub trait RecordSink {
    /// Takes one record. The borrow ends with the call: copy what must stay.
    fn record(&mut self, slot: Slot, record: &RecordRef<'_>) -> Flow;

    /// An error stood where a record should have been. What is offered next need not be the record that follows: take
    /// none before the partition has been sent to its position anew.
    fn interrupted(&mut self, slot: Slot);
}

/// The consumer group's own offsets, kept by the broker.
pub trait GroupOffsets: Send + Sync {
    /// Tells the group how far each partition is committed, so that lag tools see it; best effort.
    fn commit_group_offsets(&self, positions: &[(TopicPartition, Offset)]);
}
