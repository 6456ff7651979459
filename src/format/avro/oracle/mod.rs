//! Random schemas, datums and damage, judged by us and by the `apache-avro` crate.
//!
//! What we take, it must be able to read, to the last byte. It takes more than we do (it reads a string at the end of a
//! datum as null), so it is asked only where we say yes, and is not asked whether we may say no: that good datums
//! are taken is shown by encoding them here, in every way that the specification allows.

mod containers;
mod shapes;

use std::io::Cursor;

use apache_avro::Schema;
use apache_avro::reader::datum::GenericDatumReader;
use apache_avro::types::Value;
use apache_avro::writer::datum::GenericDatumWriter;
use proptest::prelude::*;
use proptest::strategy::ValueTree;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

use self::shapes::{encode, schema_of, shapes};
use super::{Program, inline};

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
