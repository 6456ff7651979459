//! Positions in a partition's log.

use std::fmt;
use std::str::FromStr;

/// The offset of a record, or the next offset to read; never negative.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Offset(i64);

/// Text or a number that is not an offset.
#[derive(Debug, thiserror::Error)]
#[error("{text:?} is not an offset: a whole number from 0 to {max} is needed", max = i64::MAX)]
pub struct BadOffset {
    text: String,
}

impl Offset {
    /// The first offset of an empty log.
    pub const ZERO: Offset = Offset(0);

    /// # Errors
    /// [`BadOffset`] when `value` is negative; librdkafka's logical offsets are not positions.
    pub fn new(value: i64) -> Result<Offset, BadOffset> {
        if value < 0 { Err(BadOffset { text: value.to_string() }) } else { Ok(Offset(value)) }
    }

    /// The number as Kafka has it.
    pub const fn get(self) -> i64 {
        self.0
    }

    /// The offset to read after the record at this one.
    pub const fn following(self) -> Offset {
        Offset(self.0.saturating_add(1))
    }
}

impl fmt::Display for Offset {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl FromStr for Offset {
    type Err = BadOffset;

    fn from_str(text: &str) -> Result<Offset, BadOffset> {
        // i64::from_str takes "+5" too, which no store of ours ever writes.
        let digits = !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
        match text.parse::<i64>() {
            Ok(value) if digits => Ok(Offset(value)),
            _ => Err(BadOffset { text: text.chars().take(64).collect() }),
        }
    }
}

/// A half-open range of offsets, `[first, next)`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OffsetRange {
    /// The first offset in the range.
    pub first: Offset,
    /// The first offset after the range.
    pub next: Offset,
}

impl OffsetRange {
    /// Number of offsets covered; holes in the log count.
    pub fn len(self) -> u64 {
        u64::try_from(self.next.0 - self.first.0).unwrap_or(0)
    }

    /// Whether no offset is covered.
    pub fn is_empty(self) -> bool {
        self.next <= self.first
    }
}

impl fmt::Display for OffsetRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "[{}, {})", self.first, self.next)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_read_back_as_written() {
        for value in [0, 1, i64::MAX] {
            let offset = Offset::new(value).unwrap();
            assert_eq!(offset.to_string().parse::<Offset>().unwrap(), offset);
        }
    }

    #[test]
    fn what_is_no_offset_is_refused() {
        for text in ["", "-1", "+1", " 1", "1 ", "0x1", "9223372036854775808", "earliest", "١"] {
            assert!(text.parse::<Offset>().is_err(), "{text:?}");
        }
        assert!(Offset::new(-2).is_err());
    }
}
