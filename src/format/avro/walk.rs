//! Walks a datum without decoding it, to prove that readers will be able to.
//!
//! Owns: the verdict on a datum, the limits on what one datum may demand.
//! Does not own: what the steps are (see [`super::compile`]).
//!
//! Source: Apache Avro 1.12 specification, "Binary Encoding". Stricter where readers differ: an int has at most five
//! bytes, a block's byte size is what its items take, a string is UTF-8, and nothing follows the datum.

use super::compile::{Op, Routine, compile};
use super::scalar::{Walked, boolean, branch, int, long, skip, skip_long, span, text};
use super::schema::{SchemaError, parse};
use crate::format::{BadRecord, Reason};

/// Levels of records, arrays and maps in each other. Checked where a datum can choose how deep it goes: at arrays,
/// maps, and records that are used more than once.
const MAX_DEPTH: u32 = 128;
/// Items of arrays that take no bytes: a few bytes could demand any number of them from a reader.
const MAX_EMPTY_ITEMS: u64 = 1_000_000;

/// A compiled schema: checks datums, allocates nothing. Cheap to share, never changes.
#[derive(Debug)]
pub struct Program {
    ops: Box<[Op]>,
    targets: Box<[u32]>,
    routines: Box<[Routine]>,
}

impl Program {
    /// Compiles a self-contained schema.
    ///
    /// # Errors
    /// [`SchemaError`] when the text is no schema, or beyond a limit.
    pub fn compile(schema: &str) -> Result<Program, SchemaError> {
        let code = compile(&parse(schema)?);
        Ok(Program { ops: code.ops.into(), targets: code.targets.into(), routines: code.routines.into() })
    }

    /// Checks that `datum` is one whole datum and nothing else.
    ///
    /// # Errors
    /// [`BadRecord`] with the first fault and its position in `datum`.
    pub fn validate(&self, datum: &[u8]) -> Result<(), BadRecord> {
        let end = self.measure(datum)?;
        if end == datum.len() { Ok(()) } else { Err(BadRecord::new(Reason::TrailingBytes, end)) }
    }

    /// The length of the datum that `bytes` begin with, checked; more may follow.
    ///
    /// # Errors
    /// [`BadRecord`] with the first fault and its position in `bytes`.
    pub fn measure(&self, bytes: &[u8]) -> Result<usize, BadRecord> {
        let mut walk = Walk { program: self, bytes, empty_items: 0 };
        walk.run(self.routines[0], 1, 0, 0)
    }

    /// Bytes that the program takes in memory.
    pub fn size(&self) -> usize {
        size_of_val(&*self.ops) + size_of_val(&*self.targets) + size_of_val(&*self.routines)
    }
}

struct Walk<'a> {
    program: &'a Program,
    bytes: &'a [u8],
    empty_items: u64,
}

impl<'a> Walk<'a> {
    // Runs a stretch of ops, `times` over, beginning at `pos`; answers where it came to. Recursion is bounded by
    // MAX_DEPTH.
    fn run(&mut self, stretch: Routine, mut times: u64, mut pos: usize, depth: u32) -> Walked<usize> {
        let ops: &'a [Op] = &self.program.ops[..stretch.end as usize];
        let bytes: &'a [u8] = self.bytes;
        let mut at = stretch.start as usize;
        loop {
            let Some(&op) = ops.get(at) else {
                times -= 1;
                if times == 0 {
                    return Ok(pos);
                }
                at = stretch.start as usize;
                continue;
            };
            match op {
                Op::Skip(width) => pos = skip(bytes, pos, width)?,
                Op::Boolean => pos = boolean(bytes, pos)?,
                Op::Int => pos = int(bytes, pos)?.1,
                Op::Longs(count) => {
                    for _ in 0..count {
                        pos = skip_long(bytes, pos)?;
                    }
                }
                Op::Bytes => pos = span(bytes, pos)?.1,
                Op::Text => pos = text(bytes, pos)?,
                Op::Enum { symbols } => {
                    let (index, next) = int(bytes, pos)?;
                    if !(0..i64::from(symbols)).contains(&index) {
                        return Err(BadRecord::new(Reason::EnumIndex { index, symbols }, pos));
                    }
                    pos = next;
                }
                Op::OptionalLong { empty } => {
                    let (branch, next) = branch(bytes, pos, 2)?;
                    pos = if branch == usize::from(empty) { next } else { skip_long(bytes, next)? };
                }
                Op::OptionalText { empty } => {
                    let (branch, next) = branch(bytes, pos, 2)?;
                    pos = if branch == usize::from(empty) { next } else { text(bytes, next)? };
                }
                Op::Optional { empty, end } => {
                    let (branch, next) = branch(bytes, pos, 2)?;
                    pos = next;
                    if branch == usize::from(empty) {
                        at = end as usize;
                        continue;
                    }
                }
                Op::Union { table, branches } => {
                    let (branch, next) = branch(bytes, pos, branches)?;
                    pos = next;
                    at = self.program.targets[table as usize + branch] as usize;
                    continue;
                }
                Op::Items { end, levels } => {
                    // What follows an op is an index of ops, and those are counted in 32 bits.
                    let item = Routine { start: at as u32 + 1, end };
                    pos = self.items(item, pos, deeper(depth, levels, pos)?)?;
                    at = end as usize;
                    continue;
                }
                Op::FixedItems { width, levels } => {
                    deeper(depth, levels, pos)?;
                    pos = self.fixed_items(width, pos)?;
                }
                Op::Call { routine, levels } => {
                    // The routine counts its record, so one more must fit.
                    deeper(depth, levels + 1, pos)?;
                    pos = self.run(self.program.routines[routine as usize], 1, pos, depth + levels)?;
                }
                Op::Jump(target) => {
                    at = target as usize;
                    continue;
                }
            }
            at += 1;
        }
    }

    fn items(&mut self, item: Routine, mut pos: usize, depth: u32) -> Walked<usize> {
        loop {
            let block = block(self.bytes, pos)?;
            if block.count == 0 {
                return Ok(block.start);
            }
            // Each of these items takes at least a byte.
            if block.count > (self.bytes.len() - block.start) as u64 {
                return Err(BadRecord::new(Reason::Truncated, pos));
            }
            let end = self.run(item, block.count, block.start, depth)?;
            block.check(end, pos)?;
            pos = end;
        }
    }

    fn fixed_items(&mut self, width: u64, mut pos: usize) -> Walked<usize> {
        loop {
            let block = block(self.bytes, pos)?;
            if block.count == 0 {
                return Ok(block.start);
            }
            if width == 0 {
                self.empty_items = self.empty_items.saturating_add(block.count);
                if self.empty_items > MAX_EMPTY_ITEMS {
                    return Err(BadRecord::new(Reason::TooManyEmptyItems, pos));
                }
            }
            let end = skip(self.bytes, block.start, block.count.saturating_mul(width))?;
            block.check(end, pos)?;
            pos = end;
        }
    }
}

// The head of a block of items; a count of 0 ends the array or map.
struct Block {
    count: u64,
    size: Option<u64>,
    start: usize,
}

impl Block {
    fn check(&self, end: usize, head: usize) -> Walked<()> {
        match self.size {
            Some(size) if size != (end - self.start) as u64 => Err(BadRecord::new(Reason::BlockSize, head)),
            _ => Ok(()),
        }
    }
}

#[inline]
fn block(bytes: &[u8], pos: usize) -> Walked<Block> {
    let (count, start) = long(bytes, pos)?;
    if count >= 0 {
        return Ok(Block { count: count.unsigned_abs(), size: None, start });
    }
    let (size, next) = long(bytes, start)?;
    match u64::try_from(size) {
        Ok(size) => Ok(Block { count: count.unsigned_abs(), size: Some(size), start: next }),
        Err(_) => Err(BadRecord::new(Reason::NegativeLength(size), start)),
    }
}

#[inline]
fn deeper(depth: u32, levels: u32, pos: usize) -> Walked<u32> {
    let depth = depth + levels;
    if depth > MAX_DEPTH { Err(BadRecord::new(Reason::TooDeep, pos)) } else { Ok(depth) }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIST: &str = r#"{"type":"record","name":"L","fields":[{"name":"v","type":"long"},
        {"name":"next","type":["null","L"]}]}"#;

    fn verdict(schema: &str, datum: &[u8]) -> Result<(), (Reason, usize)> {
        let program = Program::compile(schema).unwrap();
        program.validate(datum).map_err(|bad| (bad.reason, bad.position))
    }

    #[track_caller]
    fn good(schema: &str, datum: &[u8]) {
        assert_eq!(verdict(schema, datum), Ok(()), "{schema} {datum:?}");
    }

    #[track_caller]
    fn bad(schema: &str, datum: &[u8], reason: Reason, position: usize) {
        assert_eq!(verdict(schema, datum), Err((reason, position)), "{schema} {datum:?}");
    }

    // Seven bits a byte; `zigzag` is undone by the walk.
    fn varint(mut value: u64) -> Vec<u8> {
        let mut out = Vec::new();
        while value >= 0x80 {
            out.push(value as u8 | 0x80);
            value >>= 7;
        }
        out.push(value as u8);
        out
    }

    #[test]
    fn numbers_are_checked_to_their_last_bit() {
        good(r#""long""#, &[0]);
        good(r#""long""#, &varint(u64::MAX));
        good(r#""long""#, &varint(u64::MAX - 1));
        good(r#""long""#, &[0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x00]);
        let mut over = varint(u64::MAX);
        over[9] = 2;
        bad(r#""long""#, &over, Reason::NumberTooLong, 0);
        bad(r#""long""#, &[0xff; 10], Reason::NumberTooLong, 0);
        bad(r#""long""#, &[0xff; 11], Reason::NumberTooLong, 0);
        bad(r#""long""#, &[0xff; 9], Reason::Truncated, 0);
        bad(r#""long""#, &[], Reason::Truncated, 0);
        good(r#""int""#, &varint(u64::from(u32::MAX)));
        bad(r#""int""#, &varint(u64::from(u32::MAX) + 1), Reason::NumberTooLong, 0);
        bad(r#""int""#, &[0x80, 0x80, 0x80, 0x80, 0x80, 0], Reason::NumberTooLong, 0);
        bad(r#""int""#, &[0x80], Reason::Truncated, 0);
    }

    #[test]
    fn primitives_are_checked() {
        good(r#""null""#, &[]);
        bad(r#""null""#, &[0], Reason::TrailingBytes, 0);
        good(r#""boolean""#, &[1]);
        bad(r#""boolean""#, &[2], Reason::NotBoolean(2), 0);
        bad(r#""boolean""#, &[], Reason::Truncated, 0);
        good(r#""float""#, &[255; 4]);
        bad(r#""float""#, &[255; 3], Reason::Truncated, 3);
        bad(r#""double""#, &[255; 9], Reason::TrailingBytes, 8);
        good(r#"{"type":"fixed","name":"F","size":0}"#, &[]);
        good(r#"{"type":"fixed","name":"F","size":3}"#, &[1, 2, 3]);
        let three = r#"{"type":"enum","name":"E","symbols":["a","b","c"]}"#;
        good(three, &[4]);
        bad(three, &[6], Reason::EnumIndex { index: 3, symbols: 3 }, 0);
        bad(three, &[1], Reason::EnumIndex { index: -1, symbols: 3 }, 0);
    }

    #[test]
    fn lengths_stay_inside_the_datum() {
        good(r#""bytes""#, &[4, 255, 0]);
        bad(r#""bytes""#, &[4, 255], Reason::Truncated, 0);
        bad(r#""bytes""#, &[1], Reason::NegativeLength(-1), 0);
        bad(r#""string""#, &varint(1 << 63), Reason::Truncated, 0);
        bad(r#""string""#, &varint(u64::MAX - 1), Reason::Truncated, 0);
        bad(r#""string""#, &varint(u64::MAX), Reason::NegativeLength(i64::MIN), 0);
        bad(r#""string""#, &[2, b'a', 0], Reason::TrailingBytes, 2);
    }

    #[test]
    fn strings_are_utf8_wherever_the_fault_is() {
        for length in 0..40 {
            for at in 0..length {
                let mut datum = vec![b'a'; length + 1];
                datum[0] = length as u8 * 2;
                good(r#""string""#, &datum);
                datum[at + 1] = 0xff;
                bad(r#""string""#, &datum, Reason::NotUtf8, at + 1);
            }
        }
        let text = "grüße, 世界 🙂";
        let mut datum = varint(text.len() as u64 * 2);
        datum.extend_from_slice(text.as_bytes());
        good(r#""string""#, &datum);
        datum[0] -= 2;
        datum.pop();
        bad(r#""string""#, &datum, Reason::NotUtf8, 1 + text.len() - 4);
        // A surrogate, and an overlong slash: valid for sloppy decoders only.
        bad(r#""string""#, &[6, 0xed, 0xa0, 0x80], Reason::NotUtf8, 1);
        bad(r#""string""#, &[4, 0xc0, 0xaf], Reason::NotUtf8, 1);
        bad(r#"{"type":"map","values":"null"}"#, &[2, 2, 0xff, 0], Reason::NotUtf8, 2);
    }

    #[test]
    fn unions_have_the_branch_that_is_named() {
        let optional = r#"["null","string"]"#;
        good(optional, &[0]);
        good(optional, &[2, 2, b'x']);
        good(optional, &[0x82, 0x00, 0]);
        bad(optional, &[14], Reason::UnionBranch { branch: 7, branches: 2 }, 0);
        bad(optional, &[1], Reason::UnionBranch { branch: -1, branches: 2 }, 0);
        good(r#"["string","null"]"#, &[2]);
        good(r#"["string","null"]"#, &[0, 0]);
        good(r#"["null"]"#, &[0]);
        bad("[]", &[0], Reason::UnionBranch { branch: 0, branches: 0 }, 0);
        let three = r#"["long","boolean",{"type":"array","items":"string"}]"#;
        good(three, &[0, 0x80, 1]);
        good(three, &[2, 1]);
        bad(three, &[2, 3], Reason::NotBoolean(3), 1);
        good(three, &[4, 2, 2, b'x', 0]);
        bad(three, &[6], Reason::UnionBranch { branch: 3, branches: 3 }, 0);
    }

    #[test]
    fn blocks_may_tell_their_size_and_must_be_right() {
        for items in ["\"boolean\"", "{\"type\":\"fixed\",\"name\":\"F\",\"size\":1}"] {
            let array = format!(r#"{{"type":"array","items":{items}}}"#);
            good(&array, &[0]);
            good(&array, &[4, 1, 0, 0]);
            good(&array, &[2, 1, 4, 1, 0, 0]);
            good(&array, &[3, 4, 1, 0, 0]);
            bad(&array, &[3, 6, 1, 0, 0], Reason::BlockSize, 0);
            bad(&array, &[3, 2, 1, 0, 0], Reason::BlockSize, 0);
            bad(&array, &[3, 1, 1, 0, 0], Reason::NegativeLength(-1), 1);
            let end_of_block = verdict(&array, &[4, 1]).unwrap_err();
            assert_eq!(end_of_block.0, Reason::Truncated);
            bad(&array, &[2, 1], Reason::Truncated, 2);
            // i64::MIN items: the negation overflows in a careless walker.
            let mut datum = varint(u64::MAX);
            datum.extend_from_slice(&[0, 0]);
            assert_eq!(verdict(&array, &datum).unwrap_err().0, Reason::Truncated);
        }
        let map = r#"{"type":"map","values":"long"}"#;
        good(map, &[2, 2, b'k', 8, 0]);
        good(map, &[1, 6, 2, b'k', 8, 0]);
        bad(map, &[1, 8, 2, b'k', 8, 0], Reason::BlockSize, 0);
    }

    #[test]
    fn depth_ends_at_128() {
        let list = |length: usize| {
            let mut datum = [0, 2].repeat(length);
            *datum.last_mut().unwrap() = 0;
            datum
        };
        good(LIST, &list(1));
        good(LIST, &list(128));
        bad(LIST, &list(129), Reason::TooDeep, 256);
        bad(LIST, &list(10_000), Reason::TooDeep, 256);
        let tree =
            r#"{"type":"record","name":"T","fields":[{"name":"c","type":{"type":"array","items":"T"}}]}"#;
        let nested = |levels: usize| [[2].repeat(levels), [0].repeat(levels + 1)].concat();
        good(tree, &nested(63));
        bad(tree, &nested(64), Reason::TooDeep, 64);
        let endless =
            r#"{"type":"record","name":"R","fields":[{"name":"a","type":"R"},{"name":"b","type":"R"}]}"#;
        bad(endless, &[], Reason::TooDeep, 0);
    }

    #[test]
    fn items_without_bytes_are_counted() {
        let nulls = r#"{"type":"array","items":"null"}"#;
        let mut datum = varint(2_000_000);
        datum.push(0);
        good(nulls, &datum);
        datum.pop();
        datum.extend_from_slice(&[2, 0]);
        bad(nulls, &datum, Reason::TooManyEmptyItems, 3);
        bad(nulls, &[varint(1 << 41), vec![0]].concat(), Reason::TooManyEmptyItems, 0);
        // Also spread over many arrays.
        let many =
            r#"{"type":"array","items":{"type":"array","items":{"type":"record","name":"E","fields":[]}}}"#;
        let inner = [varint(1_200_000), vec![0]].concat();
        bad(many, &[vec![4], inner.clone(), inner, vec![0]].concat(), Reason::TooManyEmptyItems, 5);
    }

    #[test]
    fn numbers_of_items_beyond_the_datum_are_refused_at_once() {
        let strings = r#"{"type":"array","items":"string"}"#;
        bad(strings, &[varint(1 << 62), vec![0]].concat(), Reason::Truncated, 0);
        let doubles = r#"{"type":"array","items":"double"}"#;
        let datum = [varint(1 << 63), vec![0]].concat();
        bad(doubles, &datum, Reason::Truncated, datum.len());
    }

    #[test]
    fn logical_types_walk_as_what_they_annotate() {
        let check = |schema: &str, datum: &[u8]| good(schema, datum);
        check(r#"{"type":"bytes","logicalType":"decimal","precision":9,"scale":2}"#, &[4, 1, 2]);
        check(r#"{"type":"fixed","name":"D","size":2,"logicalType":"decimal","precision":4}"#, &[1, 2]);
        check(r#"{"type":"bytes","logicalType":"big-decimal"}"#, &[2, 9]);
        check(r#"{"type":"string","logicalType":"uuid"}"#, &[2, b'x']);
        check(r#"{"type":"fixed","name":"U","size":16,"logicalType":"uuid"}"#, &[7; 16]);
        check(r#"{"type":"int","logicalType":"date"}"#, &[2]);
        check(r#"{"type":"int","logicalType":"time-millis"}"#, &[2]);
        for kind in [
            "time-micros",
            "timestamp-millis",
            "timestamp-micros",
            "timestamp-nanos",
            "local-timestamp-millis",
            "local-timestamp-micros",
            "local-timestamp-nanos",
            "of-our-own",
        ] {
            check(&format!(r#"{{"type":"long","logicalType":"{kind}"}}"#), &[0x80, 1]);
        }
        check(r#"{"type":"fixed","name":"P","size":12,"logicalType":"duration"}"#, &[0; 12]);
        check(r#"{"type":{"type":"string","avro.java.string":"String"}}"#, &[0]);
    }
}
