//! Containers of every codec and kind, read back by us and by the `apache-avro` crate.

use std::sync::Arc;

use apache_avro::Schema;

use super::apache_reads;
use crate::budget::{Budget, Tail};
use crate::format::Encoder;
use crate::format::avro::read::ContainerReader;
use crate::format::avro::wire::{put_bytes, put_len};
use crate::format::avro::{AvroSchema, ContainerEncoder};
use crate::plan::Codec;

const EVERYTHING: &str = r#"{ "type" : "record", "name":"Every", "namespace":"org.example", "doc":"ä \u00e4",
  "aliases":["Old"], "x-custom": {"nested":[1.50, 1e3, null]},
  "fields":[
    {"name":"dec","type":{"type":"bytes","logicalType":"decimal","precision":9,"scale":2}},
    {"name":"fdec","type":{"type":"fixed","name":"D","size":4,"logicalType":"decimal","precision":9}},
    {"name":"uuid","type":{"type":"string","logicalType":"uuid"}},
    {"name":"date","type":{"type":"int","logicalType":"date"}, "default": 0},
    {"name":"tm","type":{"type":"int","logicalType":"time-millis"}},
    {"name":"tu","type":{"type":"long","logicalType":"time-micros"}},
    {"name":"tsm","type":{"type":"long","logicalType":"timestamp-millis"}},
    {"name":"ltu","type":{"type":"long","logicalType":"local-timestamp-micros"}},
    {"name":"dur","type":{"type":"fixed","name":"other.Dur","size":12,"logicalType":"duration"}},
    {"name":"color","type":{"type":"enum","name":"Color","namespace":"colors","symbols":["RED","GREEN"],"default":"RED"}},
    {"name":"u","type":["null",{"type":"record","name":"A","fields":[{"name":"x","type":"int"}]},
        {"type":"record","name":"B","fields":[{"name":"y","type":"string","order":"ignore"}]}], "default":null},
    {"name":"c2","type":["colors.Color","string"],"default":"RED"}
  ]}"#;

fn everything(i: usize) -> Vec<u8> {
    let mut out = Vec::new();
    put_bytes(&[1, i as u8], &mut out);
    out.extend_from_slice(&[0, 0, 1, 2]);
    put_bytes(b"67e55044-10b1-426f-9247-bb680e5fe0c8", &mut out);
    (0..5).for_each(|n| put_len(i * n, &mut out));
    out.extend_from_slice(&[0; 12]);
    put_len(i % 2, &mut out);
    put_len(2, &mut out);
    put_bytes(format!("number {i}").as_bytes(), &mut out);
    put_len(0, &mut out);
    put_len(1, &mut out);
    out
}

const CODECS: [Codec; 6] = [
    Codec::Null,
    Codec::Deflate(1),
    Codec::Deflate(6),
    Codec::Snappy,
    Codec::Zstandard(1),
    Codec::Zstandard(3),
];

// Writes `datums`, and flushes once in between.
fn container(text: &str, codec: Codec, datums: &[Vec<u8>]) -> Vec<u8> {
    let budget = Budget::new(1 << 30);
    let schema = Arc::new(AvroSchema::new(7, text.into()).unwrap());
    let mut encoder = ContainerEncoder::new(schema, codec, [3; 16], &budget);
    let mut tail = Tail::new(&budget);
    for (i, datum) in datums.iter().enumerate() {
        encoder.append_datum(datum, &mut tail).unwrap();
        if i == 10 {
            encoder.flush(&mut tail);
            assert_eq!(encoder.buffered(), 0);
        }
    }
    encoder.finish(&mut tail);
    assert_eq!(encoder.facts().records, datums.len() as u64);
    assert_eq!(encoder.facts().raw_bytes, datums.iter().map(Vec::len).sum::<usize>() as u64);
    let bytes = tail.take().to_vec();
    drop(encoder);
    assert_eq!(budget.used(), 0);
    bytes
}

fn read_by_both(text: &str, bytes: &[u8], datums: &[Vec<u8>]) {
    let mut reader = ContainerReader::new(bytes).unwrap();
    assert_eq!(reader.header().schema, text, "the schema is the registry's, byte for byte");
    let program = reader.header().program().unwrap();
    let mut ours = Vec::new();
    while let Some(block) = reader.next_block().unwrap() {
        assert!(block.records > 0);
        block.walk(&program, |datum| ours.push(datum.to_vec())).unwrap();
    }
    assert!(ours == datums);

    let schema = Schema::parse_str(text).unwrap();
    let reader = apache_avro::Reader::new(bytes).unwrap();
    let mut count = 0;
    for (value, datum) in reader.zip(datums) {
        assert_eq!(value.unwrap(), apache_reads(&schema, datum).unwrap());
        count += 1;
    }
    assert_eq!(count, datums.len());
}

#[test]
fn containers_are_read_back_by_both_libraries_with_every_codec() {
    for codec in CODECS {
        let datums: Vec<Vec<u8>> = (0..2_000).map(everything).collect();
        read_by_both(EVERYTHING, &container(EVERYTHING, codec, &datums), &datums);
        // Larger than a chunk, between small ones; and one that nothing fits beside.
        let sizes = [1, 100, 70_000, 65_000, 9_000, 1_000_000, 2, 73_000, 65_536, 65_537, 3];
        let datums: Vec<Vec<u8>> = sizes
            .map(|n| {
                let mut datum = Vec::new();
                put_bytes(&(0..n).map(|i| (i % 251) as u8).collect::<Vec<u8>>(), &mut datum);
                datum
            })
            .to_vec();
        read_by_both("\"bytes\"", &container("\"bytes\"", codec, &datums), &datums);
    }
}

#[test]
fn a_root_may_be_any_type() {
    let check = |text: &str, datum: &[u8]| {
        for codec in CODECS {
            let datums = vec![datum.to_vec(); 20];
            read_by_both(text, &container(text, codec, &datums), &datums);
        }
    };
    check("\"string\"", &[4, b'a', b'b']);
    check("\"long\"", &[0x80, 1]);
    check(r#"["null","long"]"#, &[2, 3]);
    check("\"null\"", &[]);
    check(r#"{"type":"record","name":"R","fields":[]}"#, &[]);
    check(r#"{"type":"map","values":"int"}"#, &[2, 2, b'k', 6, 0]);
    check(r#"{"type":"enum","name":"E","symbols":["A","B"]}"#, &[2]);
}
