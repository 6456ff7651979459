//! Writes object containers from datums that are encoded already.
//!
//! Owns: header, blocks, sync markers; the one copy of a record from the client's buffer into the open block.
//! Does not own: when the container ends, blocks of the blob store (a container's blocks are much smaller).
//! Crash: what is in the open block is read again from Kafka.
//!
//! Source: Apache Avro 1.12 specification, "Object Container Files".

use std::sync::Arc;

use sha2::{Digest, Sha256};

use super::codec;
use super::inline::inline;
use super::schema::SchemaError;
use super::walk::Program;
use super::wire::{MAGIC, MAX_LONG, SYNC, put_bytes, put_len};
use crate::budget::{Budget, Buf, CHUNK, Tail};
use crate::format::confluent::{self, FRAME};
use crate::format::{BadRecord, Encoder, Facts, Reason};
use crate::model::{Offset, RecordRef};
use crate::plan::Codec;

/// Bytes of records at which a block is closed.
const BLOCK: usize = 64 * 1024;
/// Records at which a block is closed, for records of no bytes.
const MAX_RECORDS: usize = 64 * 1024;
/// Room for a block's head: two numbers.
const HEAD: usize = 2 * MAX_LONG;
/// What a block starts with; thousands of blobs may be open and nearly empty.
const FIRST_CAPACITY: usize = 4 * 1024;

/// A schema as containers need it: the text for their headers, the program for their records.
#[derive(Debug)]
pub struct AvroSchema {
    /// The registry's id.
    pub id: u32,
    /// Self-contained text; goes into headers byte for byte.
    pub text: Arc<str>,
    /// Checks datums.
    pub program: Program,
}

impl AvroSchema {
    /// The schema that a registry has as `text`, with the types that it takes from `references` put in. This is the way
    /// from a registered schema to a container.
    ///
    /// # Errors
    /// [`SchemaError`] when a text is no schema or beyond a limit, or a name is defined nowhere or differently.
    pub fn with_references(
        id: u32,
        text: &Arc<str>,
        references: &[(String, Arc<str>)],
    ) -> Result<AvroSchema, SchemaError> {
        let inlined = inline(text, references)?;
        // Nothing put in: all blobs share the registry's own text.
        let text = if inlined == **text { Arc::clone(text) } else { inlined.into() };
        AvroSchema::new(id, text)
    }

    /// Compiles `text`, which has no references, or has them put in.
    ///
    /// # Errors
    /// [`SchemaError`] when the text is no schema, or beyond a limit.
    pub fn new(id: u32, text: Arc<str>) -> Result<AvroSchema, SchemaError> {
        let program = Program::compile(&text)?;
        Ok(AvroSchema { id, text, program })
    }
}

/// The marker between blocks of a container that begins with this record. The same records make the same bytes, so a
/// blob that is made again after a crash is equal to the first.
pub fn sync_marker(topic: &str, partition: i32, first: Offset) -> [u8; SYNC] {
    let digest = Sha256::new()
        .chain_update(topic)
        .chain_update([0])
        .chain_update(partition.to_be_bytes())
        .chain_update(first.get().to_be_bytes())
        .finalize();
    *digest.first_chunk().expect("a SHA-256 has 32 bytes")
}

/// Writes one container.
pub struct ContainerEncoder {
    schema: Arc<AvroSchema>,
    codec: Codec,
    sync: [u8; SYNC],
    budget: Budget,
    block: Option<Buf>,
    block_records: usize,
    started: bool,
    facts: Facts,
}

impl ContainerEncoder {
    /// An empty container. Nothing is written before the first record's block is closed.
    pub fn new(schema: Arc<AvroSchema>, codec: Codec, sync: [u8; SYNC], budget: &Budget) -> ContainerEncoder {
        ContainerEncoder {
            facts: Facts { schema_id: Some(schema.id), ..Facts::default() },
            schema,
            codec,
            sync,
            budget: budget.clone(),
            block: None,
            block_records: 0,
            started: false,
        }
    }

    /// The schema of all records.
    pub fn schema(&self) -> &Arc<AvroSchema> {
        &self.schema
    }

    /// Takes one record, without its frame; blocks that are full go to `out`.
    ///
    /// # Errors
    /// [`BadRecord`] with a position in `datum` when it is not one whole datum of the schema. Encoder and `out` are then
    /// as they were before the call.
    pub fn append_datum(&mut self, datum: &[u8], out: &mut Tail) -> Result<(), BadRecord> {
        let filled = self.block.as_ref().map_or(self.reserved(), Buf::len);
        if filled + datum.len() + SYNC > CHUNK {
            self.append_to_new_block(datum, out)?;
        } else {
            let reserved = self.reserved();
            let block = self.block.get_or_insert_with(|| open_block(&self.budget, reserved));
            block.reserve(datum.len() + SYNC);
            block.bytes_mut().extend_from_slice(datum);
            // Checked after the copy, in bytes that the copy has just brought near.
            if let Err(bad) = self.schema.program.validate(&block.as_slice()[filled..]) {
                block.bytes_mut().truncate(filled);
                return Err(bad);
            }
        }
        self.block_records += 1;
        self.facts.records += 1;
        self.facts.raw_bytes += datum.len() as u64;
        if self.buffered() >= BLOCK || self.block_records >= MAX_RECORDS {
            self.close_block(out);
        }
        Ok(())
    }

    // Here the check comes first: once the block before is closed there is no way back, and a bad record of many
    // megabytes must not leave a buffer of that size behind.
    fn append_to_new_block(&mut self, datum: &[u8], out: &mut Tail) -> Result<(), BadRecord> {
        self.schema.program.validate(datum)?;
        self.close_block(out);
        let mut block = open_block(&self.budget, self.reserved());
        block.reserve(datum.len() + SYNC);
        block.bytes_mut().extend_from_slice(datum);
        self.block = Some(block);
        Ok(())
    }

    fn close_block(&mut self, out: &mut Tail) {
        let Some(mut block) = self.block.take_if(|_| self.block_records > 0) else { return };
        if !self.started {
            out.push_slice(&self.header());
            self.started = true;
        }
        let reserved = self.reserved();
        let mut head = Vec::with_capacity(HEAD);
        put_len(self.block_records, &mut head);
        self.block_records = 0;
        if self.codec == Codec::Null {
            put_len(block.len() - reserved, &mut head);
            let from = reserved - head.len();
            block.bytes_mut()[from..reserved].copy_from_slice(&head);
            block.bytes_mut().extend_from_slice(&self.sync);
            out.push_buf(block, from);
            return;
        }
        codec::compress(self.codec, block.as_slice(), |packed| {
            put_len(packed.len(), &mut head);
            out.push_slice(&head);
            out.push_slice(packed);
            out.push_slice(&self.sync);
        });
    }

    fn header(&self) -> Vec<u8> {
        let mut header = Vec::with_capacity(self.schema.text.len() + 80);
        header.extend_from_slice(&MAGIC);
        put_len(2, &mut header);
        put_bytes(b"avro.codec", &mut header);
        put_bytes(codec::name(self.codec).as_bytes(), &mut header);
        put_bytes(b"avro.schema", &mut header);
        put_bytes(self.schema.text.as_bytes(), &mut header);
        put_len(0, &mut header);
        header.extend_from_slice(&self.sync);
        header
    }

    // Without a codec the block's buffer is handed over as it is, so its head must fit in front of the records.
    fn reserved(&self) -> usize {
        if self.codec == Codec::Null { HEAD } else { 0 }
    }
}

fn open_block(budget: &Budget, reserved: usize) -> Buf {
    let mut block = budget.small(FIRST_CAPACITY);
    block.bytes_mut().resize(reserved, 0);
    block
}

impl Encoder for ContainerEncoder {
    fn append(&mut self, record: &RecordRef<'_>, out: &mut Tail) -> Result<(), BadRecord> {
        let value = record.value.ok_or_else(|| BadRecord::new(Reason::NullValue, 0))?;
        let (id, datum) = confluent::split(value)?;
        if id != self.schema.id {
            return Err(BadRecord::new(Reason::OtherSchema(id), 1));
        }
        self.append_datum(datum, out).map_err(|bad| bad.shifted(FRAME))
    }

    fn flush(&mut self, out: &mut Tail) {
        self.close_block(out);
    }

    fn buffered(&self) -> usize {
        self.block.as_ref().map_or(0, |block| block.len() - self.reserved())
    }

    fn facts(&self) -> Facts {
        self.facts
    }
}

impl std::fmt::Debug for ContainerEncoder {
    // No bytes of records: they may be personal data.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ContainerEncoder").field("codec", &self.codec).field("facts", &self.facts).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LONG: &str =
        r#"{"type":"record","name":"R","fields":[{"name":"a","type":"long"},{"name":"b","type":"bytes"}]}"#;

    struct Open {
        budget: Budget,
        encoder: ContainerEncoder,
        tail: Tail,
    }

    fn open(text: &str, codec: Codec) -> Open {
        let budget = Budget::new(1 << 30);
        let schema = Arc::new(AvroSchema::new(7, text.into()).unwrap());
        let encoder = ContainerEncoder::new(schema, codec, [9; SYNC], &budget);
        let tail = Tail::new(&budget);
        Open { budget, encoder, tail }
    }

    fn datum(bytes: usize) -> Vec<u8> {
        let mut datum = vec![2];
        put_bytes(&vec![5; bytes], &mut datum);
        datum
    }

    #[test]
    fn a_container_is_laid_out_as_the_specification_says() {
        let mut open = open("\"long\"", Codec::Null);
        open.encoder.append_datum(&[2], &mut open.tail).unwrap();
        open.encoder.append_datum(&[0x80, 1], &mut open.tail).unwrap();
        open.encoder.finish(&mut open.tail);
        let expected = [
            &b"Obj\x01\x04\x14avro.codec\x08null\x16avro.schema\x0c\"long\"\x00"[..],
            &[9; 16],
            &[4, 6, 2, 0x80, 1],
            &[9; 16],
        ];
        assert_eq!(open.tail.take().to_vec(), expected.concat());
    }

    #[test]
    fn nothing_is_written_without_a_record() {
        for codec in [Codec::Null, Codec::Snappy] {
            let mut open = open(LONG, codec);
            open.encoder.flush(&mut open.tail);
            assert!(open.encoder.append_datum(&[2], &mut open.tail).is_err());
            open.encoder.finish(&mut open.tail);
            assert!(open.tail.is_empty());
        }
    }

    #[test]
    fn a_bad_record_leaves_no_trace() {
        for codec in [Codec::Null, Codec::Zstandard(1)] {
            let good: Vec<Vec<u8>> = (0..300).map(|i| datum(i * 7 % 900)).collect();
            let mut clean = open(LONG, codec);
            let mut dirty = open(LONG, codec);
            for datum in &good {
                clean.encoder.append_datum(datum, &mut clean.tail).unwrap();
                let (length, held, facts) =
                    (dirty.tail.len(), dirty.encoder.buffered(), dirty.encoder.facts());
                for bad in [&datum[..datum.len() - 1], &[&datum[..], &[0; 80_000]].concat(), &[]] {
                    dirty.encoder.append_datum(bad, &mut dirty.tail).unwrap_err();
                    assert_eq!((dirty.tail.len(), dirty.encoder.buffered()), (length, held));
                    assert_eq!(dirty.encoder.facts(), facts);
                }
                dirty.encoder.append_datum(datum, &mut dirty.tail).unwrap();
            }
            clean.encoder.finish(&mut clean.tail);
            dirty.encoder.finish(&mut dirty.tail);
            assert!(clean.tail.take().to_vec() == dirty.tail.take().to_vec());
        }
    }

    #[test]
    fn whole_records_are_taken_by_id_and_faults_are_placed_in_the_value() {
        let mut open = open(LONG, Codec::Null);
        let check = |open: &mut Open, value: Option<&[u8]>, expected: Result<(), (Reason, usize)>| {
            let record = RecordRef { offset: Offset::ZERO, timestamp: None, key: None, value, headers: None };
            let answer = open.encoder.append(&record, &mut open.tail);
            assert_eq!(answer.map_err(|bad| (bad.reason, bad.position)), expected, "{value:?}");
        };
        check(&mut open, Some(&[0, 0, 0, 0, 7, 2, 0]), Ok(()));
        check(&mut open, Some(&[0, 0, 0, 0, 8, 2, 0]), Err((Reason::OtherSchema(8), 1)));
        check(&mut open, Some(&[0, 0, 0, 0, 7, 2, 0, 0]), Err((Reason::TrailingBytes, 7)));
        check(&mut open, Some(&[9, 0, 0, 0, 7, 2, 0]), Err((Reason::WrongMagic(9), 0)));
        check(&mut open, None, Err((Reason::NullValue, 0)));
        assert_eq!(open.encoder.facts(), Facts { records: 1, raw_bytes: 2, schema_id: Some(7) });
    }

    #[test]
    fn blocks_are_closed_at_64_kib_and_buffers_start_small() {
        let mut open = open(LONG, Codec::Null);
        open.encoder.append_datum(&datum(10), &mut open.tail).unwrap();
        assert!(open.budget.used() < 5 * 1024, "{:?}", open.budget);
        let mut appended = 0;
        while open.tail.is_empty() {
            open.encoder.append_datum(&datum(1_000), &mut open.tail).unwrap();
            appended += 1;
        }
        assert_eq!(appended, 66);
        assert_eq!(open.encoder.buffered(), 0);
        assert!(open.budget.used() < CHUNK + 2 * 1024, "{:?}", open.budget);
    }

    #[test]
    fn a_record_that_does_not_fit_begins_a_block() {
        let mut open = open(LONG, Codec::Null);
        open.encoder.append_datum(&datum(60_000), &mut open.tail).unwrap();
        assert!(open.tail.is_empty());
        let second = datum(20_000);
        open.encoder.append_datum(&second, &mut open.tail).unwrap();
        assert_eq!(open.encoder.buffered(), second.len());
        assert!(open.tail.len() > 60_000 && open.tail.len() < CHUNK);
    }

    #[test]
    fn a_schema_without_references_shares_the_registrys_text() {
        let text: Arc<str> = " \"long\" ".into();
        let schema = AvroSchema::with_references(1, &text, &[("x".to_owned(), "\"int\"".into())]).unwrap();
        assert!(Arc::ptr_eq(&schema.text, &text));
    }

    #[test]
    fn records_without_bytes_make_blocks_too() {
        let mut open = open("\"null\"", Codec::Null);
        for _ in 0..MAX_RECORDS {
            assert!(open.tail.is_empty());
            open.encoder.append_datum(&[], &mut open.tail).unwrap();
        }
        assert!(!open.tail.is_empty());
    }

    #[test]
    fn a_huge_bad_record_leaves_no_huge_buffer() {
        let mut open = open(LONG, Codec::Null);
        let mut bad = datum(10_000_000);
        bad.push(0);
        open.encoder.append_datum(&bad, &mut open.tail).unwrap_err();
        assert_eq!(open.budget.used(), 0);
        assert_eq!(open.budget.peak(), 0);
    }

    #[test]
    fn markers_are_the_same_for_the_same_records_only() {
        let at = |offset| Offset::new(offset).unwrap();
        let marker = sync_marker("topic", 1, at(5));
        assert_eq!(marker, sync_marker("topic", 1, at(5)));
        for other in
            [sync_marker("topic", 1, at(6)), sync_marker("topic", 2, at(5)), sync_marker("topi", 1, at(5))]
        {
            assert_ne!(marker, other);
        }
    }
}
