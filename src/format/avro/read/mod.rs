//! Reads object containers block by block, for inspection.
//!
//! Owns: limits against files that are made to hurt; errors that name the byte.
//! Does not own: values of records; datums are measured, not decoded.
//!
//! Source: Apache Avro 1.12 specification, "Object Container Files".

mod error;
mod source;
#[cfg(test)]
mod tests;

pub use error::ReadError;

use std::io::Read;

use self::source::{Counted, metadata};
use super::codec::{Decoder, Undecodable};
use super::schema::SchemaError;
use super::walk::Program;
use super::wire::{MAGIC, SYNC};

/// Bytes of a block, stored and decompressed, that are taken unless told otherwise: a Kafka record may be large.
pub const MAX_BLOCK: usize = 256 << 20;
/// Records of no bytes in a block.
const MAX_EMPTY_RECORDS: u64 = 1_000_000;

/// What a container says of itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Header {
    /// `avro.schema`, as it stands there.
    pub schema: String,
    /// `avro.codec`; "null" where it is left out.
    pub codec: String,
    /// All entries, in order.
    pub metadata: Vec<(String, Vec<u8>)>,
    /// Stands behind each block.
    pub sync: [u8; SYNC],
}

impl Header {
    /// The compiled schema.
    ///
    /// # Errors
    /// [`SchemaError`] when the text is no schema, or beyond a limit.
    pub fn program(&self) -> Result<Program, SchemaError> {
        Program::compile(&self.schema)
    }
}

/// One block, decompressed.
#[derive(Debug, Clone, Copy)]
pub struct Block<'a> {
    /// Where it begins in the file.
    pub position: u64,
    /// Records in it, as it says.
    pub records: u64,
    /// Bytes in the file, without head and sync marker.
    pub stored: usize,
    /// The records' bytes.
    pub data: &'a [u8],
}

impl<'a> Block<'a> {
    /// Gives each datum to `each`, checked; proves that the block holds as many records as it says, and nothing else.
    ///
    /// # Errors
    /// [`ReadError::Record`] or [`ReadError::Malformed`].
    pub fn walk(&self, program: &Program, mut each: impl FnMut(&'a [u8])) -> Result<(), ReadError> {
        let mut rest = self.data;
        let mut empty = 0;
        for record in 0..self.records {
            let length = program.measure(rest).map_err(|bad| {
                let source = bad.shifted(self.data.len() - rest.len());
                ReadError::Record { position: self.position, record, source }
            })?;
            if length == 0 {
                empty += 1;
                if empty > MAX_EMPTY_RECORDS {
                    let what = "a block of more than a million records without bytes";
                    return Err(ReadError::Malformed { position: self.position, what });
                }
            }
            let (datum, behind) = rest.split_at(length);
            each(datum);
            rest = behind;
        }
        if rest.is_empty() {
            return Ok(());
        }
        Err(ReadError::Malformed {
            position: self.position,
            what: "a block with more bytes than its records",
        })
    }
}

/// Reads a container from its first byte on, one block in memory at a time.
#[derive(Debug)]
pub struct ContainerReader<R> {
    source: Counted<R>,
    header: Header,
    decoder: Decoder,
    max_block: usize,
    stored: Vec<u8>,
    data: Vec<u8>,
}

impl<R: Read> ContainerReader<R> {
    /// Reads the header. `source` should be buffered.
    ///
    /// # Errors
    /// [`ReadError`] when it is none, or its codec is not known.
    pub fn new(source: R) -> Result<ContainerReader<R>, ReadError> {
        let mut source = Counted { source, position: 0 };
        let mut magic = [0; MAGIC.len()];
        match source.fill(&mut magic, "the header") {
            Ok(()) if magic == MAGIC => {}
            Ok(()) | Err(ReadError::Truncated { .. }) => return Err(ReadError::NotAContainer),
            Err(error) => return Err(error),
        }
        let metadata = metadata(&mut source)?;
        let mut sync = [0; SYNC];
        source.fill(&mut sync, "the header")?;
        let find = |key: &str| metadata.iter().rev().find(|(name, _)| name == key).map(|(_, value)| value);
        let schema = find("avro.schema").and_then(|bytes| String::from_utf8(bytes.clone()).ok());
        let Some(schema) = schema else {
            return Err(ReadError::Malformed { position: 0, what: "a header without a schema" });
        };
        let name = find("avro.codec").map_or(&b"null"[..], Vec::as_slice);
        let Some(decoder) = Decoder::by_name(name) else {
            let name = String::from_utf8_lossy(name).chars().take(64).collect();
            return Err(ReadError::UnknownCodec { name });
        };
        let codec = String::from_utf8_lossy(name).into_owned();
        let header = Header { schema, codec, metadata, sync };
        Ok(ContainerReader {
            source,
            header,
            decoder,
            max_block: MAX_BLOCK,
            stored: Vec::new(),
            data: Vec::new(),
        })
    }

    /// Takes blocks of at most `bytes`, stored and decompressed.
    #[must_use]
    pub fn with_max_block(mut self, bytes: usize) -> ContainerReader<R> {
        self.max_block = bytes;
        self
    }

    /// What the container says of itself.
    pub fn header(&self) -> &Header {
        &self.header
    }

    /// The next block; `None` at the end of the file.
    ///
    /// # Errors
    /// [`ReadError`]; what follows a fault is not looked for.
    pub fn next_block(&mut self) -> Result<Option<Block<'_>>, ReadError> {
        let position = self.source.position;
        let Some(records) = self.source.long_or_end("a block")? else { return Ok(None) };
        let Ok(records) = u64::try_from(records) else {
            return Err(ReadError::Malformed { position, what: "a block of a negative number of records" });
        };
        let size = self.source.long("a block")?;
        let stored = usize::try_from(size)
            .map_err(|_| ReadError::Malformed { position, what: "a block of a negative size" })?;
        let too_large = ReadError::TooLarge { position, what: "a block", limit: self.max_block };
        if stored > self.max_block {
            return Err(too_large);
        }
        self.stored.clear();
        self.source.append(stored, &mut self.stored, "a block")?;
        let mut sync = [0; SYNC];
        self.source.fill(&mut sync, "a block")?;
        if sync != self.header.sync {
            return Err(ReadError::Malformed {
                position,
                what: "a block without the container's sync marker",
            });
        }
        let data = if self.decoder == Decoder::Null {
            &self.stored
        } else {
            match self.decoder.decompress(&self.stored, self.max_block, &mut self.data) {
                Ok(()) => &self.data,
                Err(Undecodable::TooLarge { .. }) => return Err(too_large),
                Err(Undecodable::Checksum) => {
                    return Err(ReadError::Malformed { position, what: "a block with a wrong checksum" });
                }
                Err(Undecodable::Broken(source)) => return Err(ReadError::Decompress { position, source }),
            }
        };
        Ok(Some(Block { position, records, stored, data }))
    }
}
