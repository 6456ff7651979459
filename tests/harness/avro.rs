//! Avro as the tests write it by hand, and as fastavro reads it.

use std::path::Path;

use serde::Deserialize;
use serde_json::Value;

use super::python;

/// A value in Confluent's framing.
pub(crate) fn framed(schema: u32, datum: &[u8]) -> Vec<u8> {
    let mut value = Vec::with_capacity(5 + datum.len());
    value.push(0);
    value.extend_from_slice(&schema.to_be_bytes());
    value.extend_from_slice(datum);
    value
}

/// An int or a long: zigzag, then seven bits a byte ("Binary encoding" of the Avro specification).
pub(crate) fn long(value: i64, out: &mut Vec<u8>) {
    let mut rest = value.wrapping_shl(1).cast_unsigned() ^ (value >> 63).cast_unsigned();
    while rest >= 0x80 {
        out.push((rest & 0x7f) as u8 | 0x80);
        rest >>= 7;
    }
    out.push(rest as u8);
}

/// A string.
pub(crate) fn string(text: &str, out: &mut Vec<u8>) {
    long(i64::try_from(text.len()).expect("short strings"), out);
    out.extend_from_slice(text.as_bytes());
}

/// A double.
pub(crate) fn double(value: f64, out: &mut Vec<u8>) {
    out.extend_from_slice(&value.to_le_bytes());
}

/// What fastavro finds in a file.
#[derive(Debug, Clone, Deserialize)]
pub(crate) struct Container {
    pub(crate) file: String,
    /// The header's text.
    pub(crate) schema: String,
    pub(crate) codec: String,
    pub(crate) count: u64,
    #[serde(default)]
    pub(crate) records: Vec<Value>,
}

/// All `*.avro` below `folder`, without their records.
pub(crate) async fn summaries(folder: &Path) -> Vec<Container> {
    parse(&python::tell("read_avro.py", &["--summary".as_ref(), folder.as_os_str()]).await)
}

/// All `*.avro` below `folder`, or the one file, with their records.
pub(crate) async fn read(folder: &Path) -> Vec<Container> {
    parse(&python::tell("read_avro.py", &[folder]).await)
}

fn parse(text: &str) -> Vec<Container> {
    text.lines().map(|line| serde_json::from_str(line).unwrap_or_else(|e| panic!("{e}: {line}"))).collect()
}
