//! Records that own their bytes, for callers of the library; the connector's own path borrows instead.

use bytes::Bytes;

use super::{Offset, RecordRef, Timestamp};

/// A record that owns its bytes. Cloning shares key and value.
#[derive(Clone, PartialEq, Eq, Default)]
pub struct Record {
    /// Its offset in the partition that it came from.
    pub offset: Offset,
    /// Absent where the source has none.
    pub timestamp: Option<Timestamp>,
    /// The key; `None` is Kafka's null.
    pub key: Option<Bytes>,
    /// The value; `None` is Kafka's null.
    pub value: Option<Bytes>,
    /// The headers: names may repeat, values may be null.
    pub headers: Vec<(String, Option<Vec<u8>>)>,
}

impl Record {
    /// The same record, borrowed.
    pub fn as_ref(&self) -> RecordRef<'_> {
        RecordRef {
            offset: self.offset,
            timestamp: self.timestamp,
            key: self.key.as_deref(),
            value: self.value.as_deref(),
            headers: Some(&self.headers),
        }
    }

    /// Bytes of key, value and headers.
    pub fn bytes(&self) -> usize {
        let headers =
            self.headers.iter().map(|(name, value)| name.len() + value.as_ref().map_or(0, Vec::len));
        self.key.as_ref().map_or(0, Bytes::len)
            + self.value.as_ref().map_or(0, Bytes::len)
            + headers.sum::<usize>()
    }
}

impl std::fmt::Debug for Record {
    // Sizes only, as with `RecordRef`.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.as_ref().fmt(f)
    }
}
