//! `[flush]`, `[delivery]`, `[format]`, `[target]`: what may stand at the top and in each feed.
//!
//! Owns: their keys, defaults and bounds.
//! Does not own: which of two values wins (see [`super::feeds`]).

use std::time::Duration;

use super::fault::Problem;
use super::names::{container, named};
use super::read::{Read, boolean, choice, duration, integer, size};
use super::section::Section;
use super::tree::{Node, Value};
use super::types::{Codec, Delivery, Flush, Format, Input, Output, Template};

const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;
const GIB: u64 = 1 << 30;
const TIB: u64 = 1 << 40;

/// Azure's limit of blocks in a blob.
const MAX_BLOCKS: u64 = 50_000;

/// Reads `[flush]`. `whole` says that this is what a feed uses, so that its values must fit each other.
pub(super) fn flush(mut section: Section<'_>, whole: bool) -> Flush {
    let (blob_path, commit_path) = (section.at("max_blob_size"), section.at("max_commit_size"));
    let block_path = section.at("max_block_size");
    let interval = section.or(
        "interval",
        Duration::from_secs(60),
        duration(
            Duration::from_millis(100),
            Duration::from_secs(86_400),
            "Shorter ones make more requests than data; Azure drops what is staged for a week without a commit.",
        ),
    );
    let max_commit_size = section.or(
        "max_commit_size",
        GIB,
        size(64 * KIB, TIB, "A commit holds one block at least, and is lost as a whole in a crash."),
    );
    let max_blob_size = section.or(
        "max_blob_size",
        256 * MIB,
        size(64 * KIB, 190 * TIB, "A blob holds one block at least; Azure takes 190 TiB at most."),
    );
    let max_block_size = section.or(
        "max_block_size",
        8 * MIB,
        size(
            64 * KIB,
            100 * MIB,
            "Smaller ones make more requests than data; larger ones (Azure would take 4,000 MiB) hold memory without \
             being faster.",
        ),
    );
    let max_records_per_blob = section.optional("max_records_per_blob", records).flatten();
    let max_blocks_per_blob = section.or("max_blocks_per_blob", MAX_BLOCKS, integer(1, MAX_BLOCKS));
    let max_open_blobs = section.or("max_open_blobs", 64, integer(1, 10_000));
    if whole {
        for (path, value) in [(blob_path, max_blob_size), (commit_path, max_commit_size)] {
            if value < max_block_size {
                let found = format!("{value} bytes, less than max_block_size ({max_block_size} bytes)");
                let remedy = format!("Raise it, or lower {block_path}.");
                section.report().fault(&path, Problem::new(found, "at least one block", remedy));
            }
        }
    }
    section.finish();
    Flush {
        interval,
        max_commit_size,
        max_blob_size,
        max_block_size,
        max_records_per_blob,
        max_blocks_per_blob: u32::try_from(max_blocks_per_blob).expect("50,000 at most"),
        max_open_blobs: usize::try_from(max_open_blobs).expect("10,000 at most"),
    }
}

fn records(node: &Node) -> Read<Option<u64>> {
    match &node.value {
        Value::Text(text) if text == "unlimited" => Ok(None),
        _ => integer(1, i64::MAX.unsigned_abs())(node).map(Some).map_err(|problem| Problem {
            expected: "a whole number of at least 1, or \"unlimited\"".to_owned(),
            ..problem
        }),
    }
}

/// Reads `[delivery]`.
pub(super) fn delivery(mut section: Section<'_>) -> Delivery {
    let mode = choice(&[("at_least_once", Delivery::AtLeastOnce)], &["exactly_once"]);
    let mode = section.or("mode", Delivery::AtLeastOnce, |node| {
        mode(node).map_err(|problem| match &node.value {
            Value::Text(text) if text == "exactly_once" => Problem {
                remedy: "exactly_once is not available in this version. With at_least_once no record is lost; a crash \
                         between the commit of blobs and the persisting of their offset writes that interval again, \
                         into blobs of other names."
                    .to_owned(),
                ..problem
            },
            _ => problem,
        })
    });
    section.finish();
    mode
}

/// Reads `[format]`.
pub(super) fn format(mut section: Section<'_>) -> Format {
    let level_path = section.at("level");
    let inputs = [
        "json",
        "protobuf",
        "bytes",
        "string",
        "text",
        "avro_single_object",
        "avro_file",
        "avro_schema_file",
    ];
    section.or("input", (), choice(&[("avro", ())], &inputs));
    section.or("output", (), choice(&[("avro", ())], &["parquet", "jsonl", "bytes", "text"]));
    section.or("on_bad_record", (), choice(&[("fail", ())], &["dead_letter", "skip"]));
    let codecs = [
        ("null", Codec::Null),
        ("deflate", Codec::Deflate(6)),
        ("snappy", Codec::Snappy),
        ("zstandard", Codec::Zstandard(1)),
    ];
    let codec = section.or("codec", Codec::Zstandard(1), choice(&codecs, &[]));
    let has_level = section.has("level");
    let codec = match codec {
        Codec::Deflate(usual) => {
            let level = section.or("level", usual.into(), integer(1, 9));
            Codec::Deflate(u32::try_from(level).expect("9 at most"))
        }
        Codec::Zstandard(_) => {
            let level = section.or("level", 1, integer(1, 19));
            Codec::Zstandard(i32::try_from(level).expect("19 at most"))
        }
        Codec::Null | Codec::Snappy => {
            section.optional("level", |_| Ok(()));
            if has_level {
                let remedy = "Remove it, or choose deflate or zstandard.";
                section
                    .report()
                    .fault(&level_path, Problem::new("a level", "none, as the codec has none", remedy));
            }
            codec
        }
    };
    section.finish();
    Format { input: Input::ConfluentAvro, output: Output::Avro(codec) }
}

/// `[target]` as far as it is known; a feed may complete it.
#[derive(Debug)]
pub(super) struct Place {
    pub(super) container: Option<String>,
    pub(super) stream: Template,
    pub(super) partition: Template,
    pub(super) suffix: bool,
}

/// Reads `[target]`.
pub(super) fn target(mut section: Section<'_>) -> Place {
    let place = Place {
        container: section.optional(
            "container",
            named("a container: 3 to 63 lower-case letters, digits and single '-'", container),
        ),
        stream: section.or("stream", Template::new("{topic}"), stream),
        partition: section.or("partition", Template::new("partition-{partition}"), partition),
        suffix: section.or("suffix", true, boolean),
    };
    section.or("layout", (), choice(&[("samza", ())], &["offset", "confluent", "capture", "template"]));
    section.finish();
    place
}

fn stream(node: &Node) -> Read<Template> {
    let expected = "a prefix for names of blobs, with {topic} and {partition} in it as you like";
    let Value::Text(text) = &node.value else {
        return Err(Problem::new(node.shown(), expected, "Write it in quotes."));
    };
    let refuse = |remedy: &str| Err(Problem::new(node.shown(), expected, remedy));
    match text.split('/').next() {
        _ if text.is_empty() => refuse("Write at least one segment, such as \"{topic}\"."),
        _ if text.starts_with('/') || text.ends_with('/') => refuse("Leave out the slashes at its ends."),
        Some("_blobfeed") => {
            refuse("Choose another beginning: _blobfeed/ is where blobfeed keeps its own blobs.")
        }
        Some(".blobfeed") => {
            refuse("Choose another beginning: .blobfeed/ is where the directory store keeps its own files.")
        }
        _ => placeholders(node, text),
    }
}

fn partition(node: &Node) -> Read<Template> {
    let expected =
        "a part of names of blobs, with {partition} and {topic} in it as you like, or \"\" for none";
    match &node.value {
        Value::Text(text) if !text.contains('/') => placeholders(node, text),
        Value::Text(_) => Err(Problem::new(node.shown(), expected, "Put what has slashes into `stream`.")),
        _ => Err(Problem::new(node.shown(), expected, "Write it in quotes.")),
    }
}

fn placeholders(node: &Node, text: &str) -> Read<Template> {
    let bare = text.replace("{topic}", "").replace("{partition}", "");
    if bare.contains(['{', '}']) {
        let remedy = "There are no other placeholders in this version, and no braces by themselves.";
        return Err(Problem::new(node.shown(), "{topic} and {partition} as placeholders", remedy));
    }
    Ok(Template::new(text))
}
