//! Why a container cannot be read.

use std::io;

use crate::error::Class;
use crate::format::BadRecord;

/// Why a file cannot be read as a container. Positions count from the file's first byte.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ReadError {
    /// The source failed.
    #[error("reading failed at byte {position}")]
    Io {
        /// Where.
        position: u64,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// The first bytes are not those of a container.
    #[error("this is no Avro object container")]
    NotAContainer,
    /// The file ends inside its header or a block.
    #[error("the file ends at byte {position}, inside {what}")]
    Truncated {
        /// The file's length.
        position: u64,
        /// What is not whole.
        what: &'static str,
    },
    /// Bytes that make no container.
    #[error("{what} at byte {position}")]
    Malformed {
        /// Where it begins.
        position: u64,
        /// What is wrong.
        what: &'static str,
    },
    /// A codec that is not read here.
    #[error("codec {name:?} is not known")]
    UnknownCodec {
        /// Its name, cut to a readable length.
        name: String,
    },
    /// A part is larger than allowed.
    #[error("{what} at byte {position} is larger than {limit} bytes")]
    TooLarge {
        /// Where it begins.
        position: u64,
        /// Which part.
        what: &'static str,
        /// The limit.
        limit: usize,
    },
    /// A block's bytes do not decompress.
    #[error("the block at byte {position} cannot be decompressed")]
    Decompress {
        /// Where the block begins.
        position: u64,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// A record does not follow the header's schema.
    #[error("record {record} of the block at byte {position} does not follow the schema")]
    Record {
        /// Where the block begins.
        position: u64,
        /// The record's number in the block, from 0.
        record: u64,
        /// What is wrong, with its position in the block's decompressed bytes.
        #[source]
        source: BadRecord,
    },
}

impl ReadError {
    /// What to do about it.
    pub fn class(&self) -> Class {
        match self {
            ReadError::Io { .. } => Class::Retry,
            _ => Class::BadData,
        }
    }
}
