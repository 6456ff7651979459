//! Reads the parts of a container and counts bytes.

use std::io::{self, Read};

use super::ReadError;
use crate::format::avro::schema::MAX_EXPANDED;

/// Bytes of a container's metadata.
const MAX_METADATA: usize = MAX_EXPANDED + (1 << 20);

/// All entries of a header.
pub(super) fn metadata<R: Read>(source: &mut Counted<R>) -> Result<Vec<(String, Vec<u8>)>, ReadError> {
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

/// A source, and how much of it was read.
#[derive(Debug)]
pub(super) struct Counted<R> {
    pub(super) source: R,
    pub(super) position: u64,
}

impl<R: Read> Counted<R> {
    pub(super) fn fill(&mut self, buffer: &mut [u8], what: &'static str) -> Result<(), ReadError> {
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
    pub(super) fn append(
        &mut self,
        length: usize,
        out: &mut Vec<u8>,
        what: &'static str,
    ) -> Result<(), ReadError> {
        let read = (&mut self.source).take(length as u64).read_to_end(out);
        let read = read.map_err(|source| ReadError::Io { position: self.position, source })?;
        self.position += read as u64;
        if read < length { Err(ReadError::Truncated { position: self.position, what }) } else { Ok(()) }
    }

    pub(super) fn long(&mut self, what: &'static str) -> Result<i64, ReadError> {
        let end = self.position;
        self.long_or_end(what)?.ok_or(ReadError::Truncated { position: end, what })
    }

    pub(super) fn long_or_end(&mut self, what: &'static str) -> Result<Option<i64>, ReadError> {
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
