//! Why a record cannot be written.

use std::fmt;

/// A record that is at fault itself; others go on. Small and `Copy`: making one costs nothing worth avoiding.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("{reason} at byte {position}")]
pub struct BadRecord {
    /// What is wrong.
    pub reason: Reason,
    /// Where, counted in the bytes that were handed over: the whole value, or the datum alone.
    pub position: usize,
}

impl BadRecord {
    /// `reason`, found at `position`.
    #[cold]
    pub fn new(reason: Reason, position: usize) -> BadRecord {
        BadRecord { reason, position }
    }

    /// The same fault, seen from `bytes` further ahead.
    #[must_use]
    pub fn shifted(self, bytes: usize) -> BadRecord {
        BadRecord { position: self.position + bytes, ..self }
    }
}

/// What is wrong with a record. Its `Display` is a clause, such as "branch 7 of a union of 2".
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Reason {
    /// The value is Kafka's null.
    NullValue,
    /// The value ends inside its Confluent frame.
    ShortFrame,
    /// The frame starts with another byte than 0.
    WrongMagic(u8),
    /// The registry knows no schema of this id.
    UnknownSchema(u32),
    /// The schema of this id cannot be used: it is no Avro, broken, or beyond a limit.
    UnusableSchema(u32),
    /// The record has the schema of this id, and the blob has another.
    OtherSchema(u32),
    /// The datum ends too early.
    Truncated,
    /// The datum ends before the value does.
    TrailingBytes,
    /// A number that is longer than its type allows, or overflows it.
    NumberTooLong,
    /// A boolean that is neither 0 nor 1.
    NotBoolean(u8),
    /// A string or a map's key that is not UTF-8.
    NotUtf8,
    /// An enum's index without a symbol.
    EnumIndex {
        /// What the datum says.
        index: i64,
        /// How many symbols there are.
        symbols: u32,
    },
    /// A union's branch that does not exist.
    UnionBranch {
        /// What the datum says.
        branch: i64,
        /// How many branches there are.
        branches: u32,
    },
    /// A length below zero.
    NegativeLength(i64),
    /// The byte size of an array's or map's block is not what its items take.
    BlockSize,
    /// Records, arrays and maps are nested too deeply.
    TooDeep,
    /// Too many items that take no bytes.
    TooManyEmptyItems,
    /// A clause of a format that is not ours: `Reason::Other(&"the key is not a number")`.
    Other(&'static &'static str),
}

impl Reason {
    /// A short word for metrics.
    pub fn kind(self) -> &'static str {
        match self {
            Reason::NullValue => "null_value",
            Reason::ShortFrame | Reason::WrongMagic(_) => "bad_frame",
            Reason::UnknownSchema(_) => "unknown_schema",
            Reason::UnusableSchema(_) => "unusable_schema",
            Reason::OtherSchema(_) => "other_schema",
            Reason::TooDeep | Reason::TooManyEmptyItems => "beyond_limits",
            Reason::Other(_) => "other",
            _ => "bad_datum",
        }
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Reason::NullValue => f.write_str("the value is null"),
            Reason::ShortFrame => f.write_str("the value is shorter than a magic byte and a schema id"),
            Reason::WrongMagic(byte) => write!(f, "magic byte {byte} instead of 0"),
            Reason::UnknownSchema(id) => write!(f, "the registry has no schema {id}"),
            Reason::UnusableSchema(id) => write!(f, "schema {id} cannot be used"),
            Reason::OtherSchema(id) => write!(f, "schema {id} in a blob of another schema"),
            Reason::Truncated => f.write_str("the datum ends too early"),
            Reason::TrailingBytes => f.write_str("bytes behind the datum"),
            Reason::NumberTooLong => f.write_str("a number beyond its type"),
            Reason::NotBoolean(byte) => write!(f, "{byte} instead of a boolean"),
            Reason::NotUtf8 => f.write_str("a string that is not UTF-8"),
            Reason::EnumIndex { index, symbols } => {
                write!(f, "symbol {index} of an enum of {symbols}")
            }
            Reason::UnionBranch { branch, branches } => {
                write!(f, "branch {branch} of a union of {branches}")
            }
            Reason::NegativeLength(length) => write!(f, "a length of {length}"),
            Reason::BlockSize => f.write_str("a block of items with a wrong byte size"),
            Reason::TooDeep => f.write_str("nesting beyond 128 levels"),
            Reason::TooManyEmptyItems => f.write_str("more than a million items without bytes"),
            Reason::Other(clause) => f.write_str(clause),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fault_says_what_and_where_in_one_line() {
        let check = |reason, expected: &str| {
            assert_eq!(BadRecord::new(reason, 3).shifted(5).to_string(), expected);
        };
        check(Reason::UnionBranch { branch: 7, branches: 2 }, "branch 7 of a union of 2 at byte 8");
        check(Reason::EnumIndex { index: -1, symbols: 3 }, "symbol -1 of an enum of 3 at byte 8");
        check(Reason::NegativeLength(-1), "a length of -1 at byte 8");
        check(Reason::Other(&"no key"), "no key at byte 8");
        check(Reason::WrongMagic(1), "magic byte 1 instead of 0 at byte 8");
    }

    #[test]
    fn a_fault_is_cheap_to_return() {
        assert!(size_of::<BadRecord>() <= 24);
    }
}
