//! Turns a schema into a flat program that walks its datums.
//!
//! Owns: what each step of the walk is; merging neighbours into one step, since each step costs a branch that the
//! processor often guesses wrong.
//! Does not own: executing (see [`super::walk`]).
//!
//! A record that is used once stands inline, so that runs of fixed size merge across its borders. One that is used
//! more often, perhaps by itself, becomes a routine: a small schema cannot unfold into a large program.

use std::collections::HashMap;

use super::schema::{Node, NodeId, Schema};

/// One step of a walk. Targets are indices of ops.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Op {
    /// So many bytes of any value.
    Skip(u64),
    /// One byte, 0 or 1.
    Boolean,
    /// A number of 32 bits.
    Int,
    /// So many numbers of 64 bits.
    Longs(u32),
    /// A length and as many bytes.
    Bytes,
    /// A length and as many bytes of UTF-8.
    Text,
    /// An index below `symbols`.
    Enum { symbols: u32 },
    /// A branch of two, one of which is empty: `empty` is its index. The other one is a number of 64 bits.
    OptionalLong { empty: u8 },
    /// The same with text.
    OptionalText { empty: u8 },
    /// The same with anything else, which follows, up to `end`.
    Optional { empty: u8, end: u32 },
    /// A branch below `branches`; `targets[table + branch]` is where it stands.
    Union { table: u32, branches: u32 },
    /// Blocks of items; an item's ops follow, up to `end`.
    Items { end: u32, levels: u32 },
    /// Blocks of items that take `width` bytes each.
    FixedItems { width: u64, levels: u32 },
    /// The routine at this index of the code's routines.
    Call { routine: u32, levels: u32 },
    /// Go on there.
    Jump(u32),
}

/// A stretch of ops.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Routine {
    pub(super) start: u32,
    pub(super) end: u32,
}

/// The ops of a program, the places of its unions' branches, and its routines, of which the first is the datum.
pub(super) struct Code {
    pub(super) ops: Vec<Op>,
    pub(super) targets: Vec<u32>,
    pub(super) routines: Vec<Routine>,
}

/// The program of `schema`.
pub(super) fn compile(schema: &Schema) -> Code {
    let mut emitter = Emitter {
        schema,
        widths: widths(schema),
        code: Code { ops: Vec::new(), targets: Vec::new(), routines: Vec::new() },
        label: 0,
        records: Vec::new(),
        numbers: HashMap::new(),
    };
    emitter.routine(|emitter| emitter.node(schema.root, 0));
    let mut done = 0;
    while let Some(&record) = emitter.records.get(done) {
        emitter.routine(|emitter| emitter.body(record, 0));
        done += 1;
    }
    emitter.code
}

// The number of bytes that every datum of a node takes, where it is one number and any bytes will do.
fn widths(schema: &Schema) -> Vec<Option<u64>> {
    let mut memo = vec![Width::Unknown; schema.nodes.len()];
    // Ascending: what a name refers to was defined before, so this recurses no deeper than the JSON did.
    (0..schema.nodes.len()).map(|id| width(schema, id, &mut memo)).collect()
}

#[derive(Clone, Copy)]
enum Width {
    Unknown,
    Busy,
    Known(Option<u64>),
}

fn width(schema: &Schema, id: NodeId, memo: &mut [Width]) -> Option<u64> {
    match memo[id] {
        Width::Known(width) => return width,
        Width::Busy => return None,
        Width::Unknown => memo[id] = Width::Busy,
    }
    let found = match &schema.nodes[id] {
        Node::Null => Some(0),
        Node::Float => Some(4),
        Node::Double => Some(8),
        Node::Fixed(size) => Some(u64::from(*size)),
        Node::Record(fields) => fields.iter().try_fold(0_u64, |sum, &field| {
            let field = width(schema, field, memo)?;
            // A chain of records that use each other twice doubles the width each time.
            Some(sum.saturating_add(field))
        }),
        _ => None,
    };
    memo[id] = Width::Known(found);
    found
}

struct Emitter<'s> {
    schema: &'s Schema,
    widths: Vec<Option<u64>>,
    code: Code,
    // Something jumps to the op at this index, so ops behind it must not be merged with ops before it.
    label: usize,
    // Records that are called, in the order of their routines, and which routine is whose.
    records: Vec<NodeId>,
    numbers: HashMap<NodeId, u32>,
}

impl Emitter<'_> {
    fn routine(&mut self, emit: impl FnOnce(&mut Self)) {
        let start = self.place_label();
        emit(self);
        let end = self.place_label();
        self.code.routines.push(Routine { start, end });
    }

    // `levels` is the number of records, arrays and maps around the node since the routine or item began.
    fn node(&mut self, id: NodeId, levels: u32) {
        if let Some(width) = self.widths[id] {
            return self.skip(width);
        }
        if matches!(self.schema.nodes[id], Node::Record(_)) && self.schema.uses[id] > 1 {
            let records = &mut self.records;
            let routine = *self.numbers.entry(id).or_insert_with(|| {
                records.push(id);
                index(records.len())
            });
            return self.push(Op::Call { routine, levels });
        }
        self.body(id, levels);
    }

    fn body(&mut self, id: NodeId, levels: u32) {
        let schema = self.schema;
        match &schema.nodes[id] {
            Node::Null | Node::Float | Node::Double | Node::Fixed(_) => {
                unreachable!("nodes of fixed width are skipped")
            }
            Node::Boolean => self.push(Op::Boolean),
            Node::Int => self.push(Op::Int),
            Node::Long => self.long(),
            Node::Bytes => self.push(Op::Bytes),
            Node::String => self.push(Op::Text),
            Node::Enum(symbols) => self.push(Op::Enum { symbols: *symbols }),
            Node::Record(fields) => fields.iter().for_each(|&field| self.node(field, levels + 1)),
            Node::Array(item) => match self.widths[*item] {
                Some(width) => self.push(Op::FixedItems { width, levels: levels + 1 }),
                None => self.items(levels + 1, |emitter| emitter.node(*item, 0)),
            },
            Node::Map(value) => self.items(levels + 1, |emitter| {
                emitter.push(Op::Text);
                emitter.node(*value, 0);
            }),
            Node::Union(branches) => self.union(branches, levels),
        }
    }

    fn items(&mut self, levels: u32, item: impl FnOnce(&mut Self)) {
        let at = self.code.ops.len();
        self.push(Op::Items { end: 0, levels });
        self.place_label();
        item(self);
        let behind = self.place_label();
        if let Op::Items { end, .. } = &mut self.code.ops[at] {
            *end = behind;
        }
    }

    fn union(&mut self, branches: &[NodeId], levels: u32) {
        if let [first, second] = *branches {
            let (empty, other) = match (self.widths[first], self.widths[second]) {
                (Some(0), _) => (0, second),
                (_, Some(0)) => (1, first),
                _ => return self.general_union(branches, levels),
            };
            match self.schema.nodes[other] {
                Node::Long => return self.push(Op::OptionalLong { empty }),
                Node::String => return self.push(Op::OptionalText { empty }),
                _ => {}
            }
            let at = self.code.ops.len();
            self.push(Op::Optional { empty, end: 0 });
            self.node(other, levels);
            let behind = self.place_label();
            if let Op::Optional { end, .. } = &mut self.code.ops[at] {
                *end = behind;
            }
            return;
        }
        self.general_union(branches, levels);
    }

    fn general_union(&mut self, branches: &[NodeId], levels: u32) {
        let table = self.code.targets.len();
        let count = index(branches.len());
        self.push(Op::Union { table: index(table), branches: count });
        self.code.targets.resize(table + branches.len(), 0);
        let mut jumps = Vec::new();
        for (i, &branch) in branches.iter().enumerate() {
            self.code.targets[table + i] = self.place_label();
            self.node(branch, levels);
            if i + 1 < branches.len() {
                jumps.push(self.code.ops.len());
                self.push(Op::Jump(0));
            }
        }
        let behind = self.place_label();
        for at in jumps {
            self.code.ops[at] = Op::Jump(behind);
        }
    }

    fn skip(&mut self, width: u64) {
        match self.last_to_merge() {
            _ if width == 0 => {}
            Some(Op::Skip(before)) => *before = before.saturating_add(width),
            _ => self.push(Op::Skip(width)),
        }
    }

    fn long(&mut self) {
        match self.last_to_merge() {
            Some(Op::Longs(count)) => *count += 1,
            _ => self.push(Op::Longs(1)),
        }
    }

    fn last_to_merge(&mut self) -> Option<&mut Op> {
        self.code.ops[self.label..].last_mut()
    }

    fn place_label(&mut self) -> u32 {
        self.label = self.code.ops.len();
        index(self.label)
    }

    fn push(&mut self, op: Op) {
        self.code.ops.push(op);
    }
}

fn index(value: usize) -> u32 {
    u32::try_from(value).expect("10,000 nodes make fewer ops")
}

#[cfg(test)]
mod tests {
    use super::super::schema::parse;
    use super::*;

    fn check(text: &str, expected: &[Op]) {
        assert_eq!(compile(&parse(text).unwrap()).ops, expected, "{text}");
    }

    fn record(fields: &[&str]) -> String {
        let fields: Vec<String> =
            fields.iter().enumerate().map(|(i, f)| format!(r#"{{"name":"f{i}","type":{f}}}"#)).collect();
        format!(r#"{{"type":"record","name":"R","fields":[{}]}}"#, fields.join(","))
    }

    #[test]
    fn runs_of_fixed_size_are_one_step_across_records() {
        let inner = r#"{"type":"record","name":"I","fields":[{"name":"a","type":"double"},
            {"name":"b","type":"null"},{"name":"c","type":{"type":"fixed","name":"F","size":3}}]}"#;
        check(&record(&[r#""float""#, inner, r#""I""#, r#""float""#]), &[Op::Skip(4 + 11 + 11 + 4)]);
        check(
            &record(&[r#""long""#, r#""long""#, r#""boolean""#, r#""float""#]),
            &[Op::Longs(2), Op::Boolean, Op::Skip(4)],
        );
    }

    #[test]
    fn neighbours_are_one_step() {
        check(
            &record(&[
                r#""string""#,
                r#""string""#,
                r#"["null","string"]"#,
                r#"["long","null"]"#,
                r#""boolean""#,
                r#""boolean""#,
            ]),
            &[
                Op::Text,
                Op::Text,
                Op::OptionalText { empty: 0 },
                Op::OptionalLong { empty: 1 },
                Op::Boolean,
                Op::Boolean,
            ],
        );
        check(r#"{"type":"map","values":"string"}"#, &[Op::Items { end: 3, levels: 1 }, Op::Text, Op::Text]);
    }

    #[test]
    fn nothing_is_merged_over_a_place_that_is_jumped_to() {
        check(
            &record(&[r#"["null","double"]"#, r#""double""#]),
            &[Op::Optional { empty: 0, end: 2 }, Op::Skip(8), Op::Skip(8)],
        );
        check(
            &record(&[r#"["float","double"]"#, r#""float""#]),
            &[Op::Union { table: 0, branches: 2 }, Op::Skip(4), Op::Jump(4), Op::Skip(8), Op::Skip(4)],
        );
        check(
            &record(&[r#"{"type":"array","items":"string"}"#, r#""string""#]),
            &[Op::Items { end: 2, levels: 2 }, Op::Text, Op::Text],
        );
    }

    #[test]
    fn types_of_no_bytes_take_no_steps() {
        check(r#""null""#, &[]);
        check(r#"{"type":"record","name":"R","fields":[]}"#, &[]);
        check(r#"{"type":"array","items":"null"}"#, &[Op::FixedItems { width: 0, levels: 1 }]);
    }

    #[test]
    fn a_record_that_is_used_again_is_a_routine() {
        let list = r#"{"type":"record","name":"L","fields":[{"name":"v","type":"long"},
            {"name":"next","type":["null","L"]}]}"#;
        check(
            list,
            &[
                Op::Call { routine: 1, levels: 0 },
                Op::Longs(1),
                Op::Optional { empty: 0, end: 4 },
                Op::Call { routine: 1, levels: 1 },
            ],
        );
        let code = compile(&parse(list).unwrap());
        assert_eq!(code.routines, [Routine { start: 0, end: 1 }, Routine { start: 1, end: 4 }]);
    }

    #[test]
    fn a_small_schema_does_not_unfold_into_a_large_program() {
        // Each type holds the one before twice: 2^200 fields if it were unfolded.
        let mut fields =
            vec![r#"{"type":"record","name":"T0","fields":[{"name":"a","type":"boolean"}]}"#.to_owned()];
        for i in 1..200 {
            fields.push(format!(
                r#"{{"type":"record","name":"T{i}","fields":[{{"name":"a","type":"T{0}"}},{{"name":"b","type":"T{0}"}}]}}"#,
                i - 1
            ));
        }
        let fields: Vec<&str> = fields.iter().map(String::as_str).collect();
        let code = compile(&parse(&record(&fields)).unwrap());
        assert!(code.ops.len() < 1_000, "{}", code.ops.len());
        let fixed = record(&fields).replace("boolean", "double");
        assert_eq!(compile(&parse(&fixed).unwrap()).ops, [Op::Skip(u64::MAX)]);
    }
}
