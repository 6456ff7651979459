//! Random schemas, and random datums of them in every way that the specification allows.

use proptest::prelude::*;
use rand::Rng;
use rand::rngs::StdRng;
use serde_json::json;

use crate::format::avro::wire::{put_bytes, put_len, put_long};

#[derive(Debug, Clone)]
pub(super) enum Shape {
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

pub(super) fn shapes() -> impl Strategy<Value = Shape> {
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
pub(super) enum Type {
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

pub(super) fn schema_of(shape: &Shape) -> (String, Type) {
    let root = Shape::Record(vec![shape.clone(), Shape::Long, shape.clone()], true);
    let (json, kind, _) = Namer::default().name(&root, "root");
    (json.to_string(), kind)
}

pub(super) fn encode(kind: &Type, rng: &mut StdRng, out: &mut Vec<u8>) {
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
