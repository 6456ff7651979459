//! What is in one blob.

use std::io::Read;

use serde::Serialize;

use crate::format::avro::SchemaError;
use crate::format::avro::read::{ContainerReader, ReadError};
use crate::model::Metadata;

/// What was found in a blob.
#[derive(Debug, Clone, Serialize)]
pub struct Inspection {
    /// The format's name.
    pub format: &'static str,
    /// How blocks are compressed.
    pub codec: String,
    /// The schema's text, as the header has it.
    pub schema: String,
    /// Entries of the header besides schema and codec, as text.
    pub header: Vec<(String, String)>,
    /// Blocks of the container.
    pub blocks: u64,
    /// Records, each checked against the schema.
    pub records: u64,
    /// Bytes of the records before compression.
    pub raw_bytes: u64,
    /// Bytes of the blocks as stored.
    pub stored_bytes: u64,
    /// The blob's own metadata; empty where the place that it is in has none.
    pub metadata: Metadata,
}

/// Why a blob cannot be inspected.
#[derive(Debug, thiserror::Error)]
pub enum InspectError {
    /// It is no readable container.
    #[error("the blob cannot be read as Avro")]
    Read(#[from] ReadError),
    /// Its schema is none.
    #[error("the schema in the blob's header cannot be used")]
    Schema(#[from] SchemaError),
}

/// Reads a blob from `source` to its end, and checks each record. Memory is bounded by one block.
///
/// # Errors
/// [`InspectError`] with the first fault and the byte where it is.
pub fn inspect(source: impl Read, metadata: Metadata) -> Result<Inspection, InspectError> {
    let mut reader = ContainerReader::new(source)?;
    let header = reader.header().clone();
    let program = header.program()?;
    let known = |name: &str| name == "avro.schema" || name == "avro.codec";
    let mut found = Inspection {
        format: "avro",
        codec: header.codec,
        schema: header.schema,
        header: header
            .metadata
            .iter()
            .filter(|(name, _)| !known(name))
            .map(|(name, value)| (name.clone(), String::from_utf8_lossy(value).into_owned()))
            .collect(),
        blocks: 0,
        records: 0,
        raw_bytes: 0,
        stored_bytes: 0,
        metadata,
    };
    while let Some(block) = reader.next_block()? {
        block.walk(&program, |_| {})?;
        found.blocks += 1;
        found.records += block.records;
        found.raw_bytes += block.data.len() as u64;
        found.stored_bytes += block.stored as u64;
    }
    Ok(found)
}
