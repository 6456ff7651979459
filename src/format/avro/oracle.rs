//! Random schemas, datums and damage, judged by us and by the `apache-avro` crate.
//!
//! What we take, it must be able to read, to the last byte. It takes more than we do (it reads a string at the end of a
//! datum as null), so it is asked only where we say yes, and is not asked whether we may say no: that good datums
//! are taken is shown by encoding them here, in every way that the specification allows.

use std::io::Cursor;
use std::sync::Arc;

use apache_avro::Schema;
use apache_avro::reader::datum::GenericDatumReader;
use apache_avro::types::Value;
use apache_avro::writer::datum::GenericDatumWriter;
use proptest::prelude::*;
use proptest::strategy::ValueTree;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use serde_json::json;

use super::wire::{put_bytes, put_len, put_long};
use super::{AvroSchema, ContainerEncoder, Program, inline, read::ContainerReader};
use crate::budget::{Budget, Tail};
use crate::format::Encoder;
use crate::plan::Codec;

#[derive(Debug, Clone)]
enum Shape {
    Null,
    Boolean,
    Int,
    Long,
    Float,
    Double,
    Bytes,
    Text,
    Fixed(usize),
    Enum(usize),
    Array(Box<Shape>),
    Map(Box<Shape>),
    Optional(Box<Shape>, bool),
    Union(Vec<Shape>),
    Record(Vec<Shape>, bool),
    /// The named type that was defined so many definitions ago, or a long.
    Again(usize),
}

fn shapes() -> impl Strategy<Value = Shape> {
    let leaf = prop_oneof![
        Just(Shape::Null),
        Just(Shape::Boolean),
        Just(Shape::Int),
        Just(Shape::Long),
        Just(Shape::Float),
        Just(Shape::Double),
        Just(Shape::Bytes),
        Just(Shape::Text),
        (0_usize..20).prop_map(Shape::Fixed),
        (1_usize..300).prop_map(Shape::Enum),
        (0_usize..4).prop_map(Shape::Again),
    ];
    leaf.prop_recursive(5, 40, 6, |inner| {
        let boxed = inner.clone().prop_map(Box::new);
        prop_oneof![
            boxed.clone().prop_map(Shape::Array),
            boxed.clone().prop_map(Shape::Map),
            (boxed, any::<bool>()).prop_map(|(shape, first)| Shape::Optional(shape, first)),
            prop::collection::vec(inner.clone(), 1..5).prop_map(Shape::Union),
            (prop::collection::vec(inner, 0..6), any::<bool>()).prop_map(|(f, own)| Shape::Record(f, own)),
        ]
    })
}

/// A shape with names given, and how to encode it.
#[derive(Debug, Clone)]
enum Type {
    Plain(Shape),
    Array(Box<Type>),
    Map(Box<Type>),
    Union(Vec<Type>),
    Record(Vec<Type>),
}

#[derive(Default)]
struct Namer {
    done: Vec<(String, Type)>,
    names: usize,
}

impl Namer {
    // JSON, type, and what must not be twice in a union.
    fn name(&mut self, shape: &Shape, space: &str) -> (serde_json::Value, Type, String) {
        let plain = |name: &str| (json!(name), Type::Plain(shape.clone()), name.to_owned());
        match shape {
            Shape::Null => plain("null"),
            Shape::Boolean => plain("boolean"),
            Shape::Int => plain("int"),
            Shape::Long => plain("long"),
            Shape::Float => plain("float"),
            Shape::Double => plain("double"),
            Shape::Bytes => plain("bytes"),
            Shape::Text => plain("string"),
            Shape::Fixed(size) => {
                let (name, full) = self.fresh(space);
                self.done.push((full.clone(), Type::Plain(shape.clone())));
                (json!({"type": "fixed", "name": name, "size": size}), Type::Plain(shape.clone()), full)
            }
            Shape::Enum(count) => {
                let (name, full) = self.fresh(space);
                let symbols: Vec<String> = (0..*count).map(|i| format!("S{i}")).collect();
                self.done.push((full.clone(), Type::Plain(shape.clone())));
                (json!({"type": "enum", "name": name, "symbols": symbols}), Type::Plain(shape.clone()), full)
            }
            Shape::Array(item) => {
                let (item, kind, _) = self.name(item, space);
                (json!({"type": "array", "items": item}), Type::Array(Box::new(kind)), "array".into())
            }
            Shape::Map(value) => {
                let (value, kind, _) = self.name(value, space);
                (json!({"type": "map", "values": value}), Type::Map(Box::new(kind)), "map".into())
            }
            Shape::Optional(shape, null_first) => {
                let mut branches = vec![Shape::Null, (**shape).clone()];
                if !null_first {
                    branches.reverse();
                }
                self.union(&branches, space)
            }
            Shape::Union(branches) => self.union(branches, space),
            Shape::Record(fields, own_space) => {
                let (name, full) = self.fresh(space);
                let (mut attributes, space, full) = if *own_space {
                    let space = format!("own.n{}", self.names);
                    (json!({"namespace": space}), space.clone(), format!("{space}.{name}"))
                } else {
                    (json!({}), space.to_owned(), full)
                };
                let mut types = Vec::new();
                let mut list = Vec::new();
                for (i, field) in fields.iter().enumerate() {
                    let (json, kind, _) = self.name(field, &space);
                    list.push(json!({"name": format!("f{i}"), "type": json}));
                    types.push(kind);
                }
                attributes["type"] = json!("record");
                attributes["name"] = json!(name);
                attributes["fields"] = json!(list);
                self.done.push((full.clone(), Type::Record(types.clone())));
                (attributes, Type::Record(types), full)
            }
            Shape::Again(back) => match self.done.iter().rev().nth(*back).cloned() {
                Some((full, kind)) => (json!(full), kind, full),
                None => (json!("long"), Type::Plain(Shape::Long), "long".into()),
            },
        }
    }

    fn union(&mut self, branches: &[Shape], space: &str) -> (serde_json::Value, Type, String) {
        let mut taken = Vec::new();
        let (mut list, mut types) = (Vec::new(), Vec::new());
        for branch in branches {
            if matches!(branch, Shape::Union(_) | Shape::Optional(..)) {
                continue;
            }
            let before = (self.done.len(), self.names);
            let (json, kind, key) = self.name(branch, space);
            if taken.contains(&key) {
                // The branch is left out, so what it defined is not there.
                self.done.truncate(before.0);
                self.names = before.1;
                continue;
            }
            taken.push(key);
            list.push(json);
            types.push(kind);
        }
        if list.is_empty() {
            return self.union(&[Shape::Null], space);
        }
        (json!(list), Type::Union(types), "union".into())
    }

    fn fresh(&mut self, space: &str) -> (String, String) {
        self.names += 1;
        let name = format!("N{}", self.names);
        let full = format!("{space}.{name}");
        (name, full)
    }
}

fn schema_of(shape: &Shape) -> (String, Type) {
    let root = Shape::Record(vec![shape.clone(), Shape::Long, shape.clone()], true);
    let (json, kind, _) = Namer::default().name(&root, "root");
    (json.to_string(), kind)
}

fn encode(kind: &Type, rng: &mut StdRng, out: &mut Vec<u8>) {
    match kind {
        Type::Plain(shape) => plain(shape, rng, out),
        Type::Array(item) => blocks(rng, out, |rng, out| encode(item, rng, out)),
        Type::Map(value) => blocks(rng, out, |rng, out| {
            text(rng, out);
            encode(value, rng, out);
        }),
        Type::Union(branches) => {
            let branch = rng.random_range(0..branches.len());
            put_len(branch, out);
            encode(&branches[branch], rng, out);
        }
        Type::Record(fields) => fields.iter().for_each(|field| encode(field, rng, out)),
    }
}

fn plain(shape: &Shape, rng: &mut StdRng, out: &mut Vec<u8>) {
    match shape {
        Shape::Boolean => out.push(rng.random_range(0..2)),
        Shape::Int => put_long(i64::from(rng.random::<i32>() >> rng.random_range(0..32)), out),
        Shape::Long => put_long(rng.random::<i64>() >> rng.random_range(0..64), out),
        Shape::Float => out.extend_from_slice(&rng.random::<[u8; 4]>()),
        Shape::Double => out.extend_from_slice(&rng.random::<[u8; 8]>()),
        Shape::Bytes => {
            let bytes: Vec<u8> = (0..rng.random_range(0..70)).map(|_| rng.random()).collect();
            put_bytes(&bytes, out);
        }
        Shape::Text => text(rng, out),
        Shape::Fixed(size) => out.extend((0..*size).map(|_| rng.random::<u8>())),
        Shape::Enum(count) => put_len(rng.random_range(0..*count), out),
        _ => {}
    }
}

fn text(rng: &mut StdRng, out: &mut Vec<u8>) {
    let ascii = rng.random::<bool>();
    let length = rng.random_range(0..40);
    let char = |rng: &mut StdRng| {
        if ascii { char::from(rng.random_range(b' '..b'~')) } else { rng.random::<char>() }
    };
    let text: String = (0..length).map(|_| char(rng)).collect();
    put_bytes(text.as_bytes(), out);
}

fn blocks(rng: &mut StdRng, out: &mut Vec<u8>, mut item: impl FnMut(&mut StdRng, &mut Vec<u8>)) {
    for _ in 0..rng.random_range(0..3) {
        let count = rng.random_range(1..4_usize);
        let mut items = Vec::new();
        (0..count).for_each(|_| item(rng, &mut items));
        if rng.random() {
            put_len(count, out);
        } else {
            put_long(-(count as i64), out);
            put_len(items.len(), out);
        }
        out.extend_from_slice(&items);
    }
    out.push(0);
}

fn apache_reads(schema: &Schema, datum: &[u8]) -> Result<Value, String> {
    let reader = GenericDatumReader::builder(schema).build().map_err(|e| e.to_string())?;
    let mut source = Cursor::new(datum);
    let value = reader.read_value(&mut source).map_err(|e| e.to_string())?;
    match datum.len() as u64 - source.position() {
        0 => Ok(value),
        left => Err(format!("{left} bytes are left")),
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn whole_datums_are_taken_and_parts_are_not(shape in shapes(), seed: u64) {
        let (text, kind) = schema_of(&shape);
        let program = Program::compile(&text).map_err(|e| TestCaseError::fail(format!("{e} in {text}")))?;
        let schema = Schema::parse_str(&text).map_err(|e| TestCaseError::fail(format!("{e} in {text}")))?;
        let mut rng = StdRng::seed_from_u64(seed);
        for _ in 0..4 {
            let mut datum = Vec::new();
            encode(&kind, &mut rng, &mut datum);
            prop_assert_eq!(program.validate(&datum), Ok(()), "{} {:?}", text, datum);
            let value = apache_reads(&schema, &datum);
            prop_assert!(value.is_ok(), "{:?} {} {:?}", value, text, datum);
            let again = GenericDatumWriter::builder(&schema).build().unwrap().write_value_to_vec(value.unwrap());
            prop_assert_eq!(program.validate(&again.unwrap()), Ok(()));
            for length in 0..datum.len() {
                prop_assert!(program.validate(&datum[..length]).is_err(), "{} {:?} at {}", text, datum, length);
            }
            datum.push(0);
            prop_assert!(program.validate(&datum).is_err());
        }
    }

    #[test]
    fn what_is_taken_after_damage_can_be_read(shape in shapes(), seed: u64) {
        let (text, kind) = schema_of(&shape);
        let program = Program::compile(&text).unwrap();
        let schema = Schema::parse_str(&text).unwrap();
        let mut rng = StdRng::seed_from_u64(seed);
        let mut datum = Vec::new();
        encode(&kind, &mut rng, &mut datum);
        prop_assume!(!datum.is_empty());
        for _ in 0..200 {
            let mut damaged = datum.clone();
            let at = rng.random_range(0..damaged.len());
            match rng.random_range(0..4) {
                0 => damaged[at] = rng.random(),
                1 => damaged[at] ^= 1 << rng.random_range(0..8),
                2 => { damaged.remove(at); }
                _ => damaged.insert(at, rng.random()),
            }
            if program.validate(&damaged).is_ok() {
                let answer = apache_reads(&schema, &damaged);
                prop_assert!(answer.is_ok(), "{:?} {} {:?}", answer, text, damaged);
            }
        }
    }
}

#[test]
fn noise_and_broken_schemas_never_panic() {
    let mut rng = StdRng::seed_from_u64(7);
    let mut runner = proptest::test_runner::TestRunner::deterministic();
    for _ in 0..200 {
        let shape = shapes().new_tree(&mut runner).unwrap().current();
        let (text, _) = schema_of(&shape);
        let program = Program::compile(&text).unwrap();
        for _ in 0..50 {
            let noise: Vec<u8> = (0..rng.random_range(0..60)).map(|_| rng.random()).collect();
            let _ = program.validate(&noise);
        }
        let mut text = text.into_bytes();
        for _ in 0..5 {
            let at = rng.random_range(0..text.len());
            text[at] = b"{}[]\":,x0"[rng.random_range(0..9)];
            if let Ok(text) = std::str::from_utf8(&text) {
                let _ = Program::compile(text);
                let _ = inline(text, &[("a", "\"int\"")]);
            }
        }
    }
}

#[test]
fn both_libraries_agree_on_recursive_and_foreign_types() {
    let check = |text: &str, datum: &[u8]| {
        Program::compile(text).unwrap().validate(datum).unwrap();
        apache_reads(&Schema::parse_str(text).unwrap(), datum).unwrap();
    };
    let tree = r#"{"type":"record","name":"a.T","fields":[{"name":"v","type":"int"},
        {"name":"left","type":["null","T"]},{"name":"right","type":["a.T","null"]}]}"#;
    check(tree, &[2, 2, 4, 0, 2, 0, 6, 0, 2]);
    let borrowed = inline(
        r#"{"type":"record","name":"y.R","fields":[{"name":"a","type":"x.B"},{"name":"b","type":["null","x.F"]}]}"#,
        &[
            ("x.B", r#"{"type":"record","name":"B","namespace":"x","fields":[{"name":"f","type":"F"}]}"#),
            ("x.F", r#"{"type":"fixed","name":"F","namespace":"x","size":1}"#),
        ],
    );
    check(&borrowed.unwrap(), &[9, 2, 8]);
}

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
