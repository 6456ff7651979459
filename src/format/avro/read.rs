//! Reads object containers block by block, for inspection.
//!
//! Owns: limits against files that are made to hurt; errors that name the byte.
//! Does not own: values of records; datums are measured, not decoded.
//!
//! Source: Apache Avro 1.12 specification, "Object Container Files".

use std::io::{self, Read};

use super::codec::{Decoder, Undecodable};
use super::schema::{MAX_EXPANDED, SchemaError};
use super::walk::Program;
use super::wire::{MAGIC, SYNC};
use crate::format::BadRecord;

/// Bytes of a block, stored and decompressed, that are taken unless told otherwise: a Kafka record may be large.
pub const MAX_BLOCK: usize = 256 << 20;
/// Bytes of a container's metadata.
const MAX_METADATA: usize = MAX_EXPANDED + (1 << 20);
/// Records of no bytes in a block.
const MAX_EMPTY_RECORDS: u64 = 1_000_000;

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

fn metadata<R: Read>(source: &mut Counted<R>) -> Result<Vec<(String, Vec<u8>)>, ReadError> {
    let mut entries = Vec::new();
    let mut room = MAX_METADATA;
    loop {
        let count = source.long("the header")?;
        if count == 0 {
            return Ok(entries);
        }
        if count < 0 {
            // A byte size follows; entries are read one by one all the same.
            source.long("the header")?;
        }
        for _ in 0..count.unsigned_abs() {
            let position = source.position;
            let name = string(source, &mut room)?;
            let Ok(name) = String::from_utf8(name) else {
                return Err(ReadError::Malformed { position, what: "a metadata key that is not UTF-8" });
            };
            entries.push((name, string(source, &mut room)?));
        }
    }
}

fn string<R: Read>(source: &mut Counted<R>, room: &mut usize) -> Result<Vec<u8>, ReadError> {
    let position = source.position;
    let length = usize::try_from(source.long("the header")?)
        .map_err(|_| ReadError::Malformed { position, what: "metadata of a negative length" })?;
    // Entries without bytes count too, or a short file could make many.
    let Some(left) = room.checked_sub(length.saturating_add(32)) else {
        return Err(ReadError::TooLarge { position, what: "metadata", limit: MAX_METADATA });
    };
    *room = left;
    let mut bytes = Vec::new();
    source.append(length, &mut bytes, "the header")?;
    Ok(bytes)
}

#[derive(Debug)]
struct Counted<R> {
    source: R,
    position: u64,
}

impl<R: Read> Counted<R> {
    fn fill(&mut self, buffer: &mut [u8], what: &'static str) -> Result<(), ReadError> {
        let mut done = 0;
        while done < buffer.len() {
            match self.source.read(&mut buffer[done..]) {
                Ok(0) => return Err(ReadError::Truncated { position: self.position, what }),
                Ok(length) => {
                    done += length;
                    self.position += length as u64;
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(source) => return Err(ReadError::Io { position: self.position, source }),
            }
        }
        Ok(())
    }

    // Memory follows the bytes that really come, not the length that the file claims.
    fn append(&mut self, length: usize, out: &mut Vec<u8>, what: &'static str) -> Result<(), ReadError> {
        let read = (&mut self.source).take(length as u64).read_to_end(out);
        let read = read.map_err(|source| ReadError::Io { position: self.position, source })?;
        self.position += read as u64;
        if read < length { Err(ReadError::Truncated { position: self.position, what }) } else { Ok(()) }
    }

    fn long(&mut self, what: &'static str) -> Result<i64, ReadError> {
        let end = self.position;
        self.long_or_end(what)?.ok_or(ReadError::Truncated { position: end, what })
    }

    fn long_or_end(&mut self, what: &'static str) -> Result<Option<i64>, ReadError> {
        let position = self.position;
        let mut value = 0_u64;
        for i in 0..10 {
            let mut byte = [0];
            match self.fill(&mut byte, what) {
                Err(ReadError::Truncated { .. }) if i == 0 => return Ok(None),
                other => other?,
            }
            if i == 9 && byte[0] > 1 {
                break;
            }
            value |= u64::from(byte[0] & 0x7f) << (7 * i);
            if byte[0] < 0x80 {
                return Ok(Some((value >> 1).cast_signed() ^ -(value & 1).cast_signed()));
            }
        }
        Err(ReadError::Malformed { position, what: "a number of more than 64 bits" })
    }
}

#[cfg(test)]
mod tests {
    use super::super::wire::{put_bytes, put_len, put_long};
    use super::*;
    use crate::error::chain;

    fn header(codec: &str) -> Vec<u8> {
        let mut out = MAGIC.to_vec();
        // One block of entries with a byte size, as other writers make them.
        let mut entries = Vec::new();
        put_bytes(b"avro.schema", &mut entries);
        put_bytes(b"\"string\"", &mut entries);
        put_bytes(b"avro.codec", &mut entries);
        put_bytes(codec.as_bytes(), &mut entries);
        put_bytes(b"other", &mut entries);
        put_bytes(&[0xff], &mut entries);
        put_long(-3, &mut out);
        put_len(entries.len(), &mut out);
        out.extend_from_slice(&entries);
        out.push(0);
        out.extend_from_slice(&[7; SYNC]);
        out
    }

    fn block(records: i64, data: &[u8]) -> Vec<u8> {
        let mut out = Vec::new();
        put_long(records, &mut out);
        put_bytes(data, &mut out);
        out.extend_from_slice(&[7; SYNC]);
        out
    }

    fn read(file: &[u8]) -> Result<Vec<Vec<u8>>, ReadError> {
        let mut reader = ContainerReader::new(file)?.with_max_block(1000);
        let program = reader.header().program().unwrap();
        let mut datums = Vec::new();
        while let Some(block) = reader.next_block()? {
            block.walk(&program, |datum| datums.push(datum.to_vec()))?;
        }
        Ok(datums)
    }

    fn good() -> Vec<u8> {
        [header("null"), block(2, &[2, b'a', 0]), block(1, &[4, b'b', b'c'])].concat()
    }

    #[test]
    fn header_and_blocks_are_read() {
        let file = good();
        let reader = ContainerReader::new(&file[..]).unwrap();
        let found = reader.header();
        assert_eq!((found.schema.as_str(), found.codec.as_str()), ("\"string\"", "null"));
        assert_eq!(found.metadata[2], ("other".to_owned(), vec![0xff]));
        assert_eq!(read(&file).unwrap(), [&[2, b'a'][..], &[0], &[4, b'b', b'c']]);
        assert_eq!(read(&header("null")).unwrap(), Vec::<Vec<u8>>::new());
    }

    #[test]
    fn every_cut_is_noticed_unless_it_is_between_blocks() {
        let file = good();
        let borders =
            [header("null").len(), header("null").len() + block(2, &[2, b'a', 0]).len(), file.len()];
        for length in 0..=file.len() {
            assert_eq!(read(&file[..length]).is_ok(), borders.contains(&length), "at {length}");
        }
    }

    #[test]
    fn faults_name_their_place() {
        let check = |file: Vec<u8>, expected: &str| {
            assert_eq!(chain(&read(&file).unwrap_err()), expected);
        };
        let start = header("null").len();
        let with = |block: Vec<u8>| [header("null"), block].concat();
        check(b"PAR1".to_vec(), "this is no Avro object container");
        check(b"Ob".to_vec(), "this is no Avro object container");
        check(header("lzma"), "codec \"lzma\" is not known");
        check(with(vec![2, 4]), &format!("the file ends at byte {}, inside a block", start + 2));
        check(with(block(-1, &[])), &format!("a block of a negative number of records at byte {start}"));
        check(with(vec![2, 1]), &format!("a block of a negative size at byte {start}"));
        check(
            with(block(2, &[0])),
            &format!(
                "record 1 of the block at byte {start} does not follow the schema: the datum ends too early at byte 1"
            ),
        );
        check(with(block(1, &[0, 0])), &format!("a block with more bytes than its records at byte {start}"));
        let mut marker = with(block(1, &[0]));
        *marker.last_mut().unwrap() = 8;
        check(marker, &format!("a block without the container's sync marker at byte {start}"));
        check(with(vec![0xff; 12]), &format!("a number of more than 64 bits at byte {start}"));
        check(with(block(1, &[0; 1001])), &format!("a block at byte {start} is larger than 1000 bytes"));
        let snappy = [header("snappy"), block(1, &[1, 0, 0, 9, 9, 9, 9])].concat();
        check(snappy, &format!("a block with a wrong checksum at byte {}", header("snappy").len()));
        let deflate = [header("deflate"), block(1, &[0xff, 0xff])].concat();
        assert!(chain(&read(&deflate).unwrap_err()).contains("cannot be decompressed: "));
        let mut no_schema = MAGIC.to_vec();
        no_schema.push(0);
        no_schema.extend_from_slice(&[0; SYNC]);
        check(no_schema, "a header without a schema at byte 0");
    }

    #[test]
    fn claims_alone_take_no_memory() {
        let mut file = MAGIC.to_vec();
        put_len(1 << 40, &mut file);
        put_len(1 << 50, &mut file);
        assert!(matches!(read(&file), Err(ReadError::TooLarge { what: "metadata", .. })));
        let mut many = MAGIC.to_vec();
        put_len(1 << 40, &mut many);
        many.extend(std::iter::repeat_n(0, 1 << 20));
        assert!(matches!(read(&many), Err(ReadError::TooLarge { what: "metadata", .. })));
        let mut file = header("null");
        put_len(1, &mut file);
        put_len(900, &mut file);
        assert!(matches!(read(&file), Err(ReadError::Truncated { .. })));
    }

    #[test]
    fn records_without_bytes_are_counted() {
        let nulls = Program::compile("\"null\"").unwrap();
        let block = |records| Block { position: 5, records, stored: 0, data: &[] };
        assert!(block(1_000_000).walk(&nulls, |_| ()).is_ok());
        assert!(block(1 << 60).walk(&nulls, |_| ()).is_err());
    }

    #[test]
    fn decompressed_blocks_are_limited() {
        let stored = zstd::bulk::compress(&[0; 5_000], 1).unwrap();
        let file = [header("zstandard"), block(1, &stored)].concat();
        assert!(matches!(read(&file), Err(ReadError::TooLarge { what: "a block", limit: 1000, .. })));
    }
}
