//! Every key that a plan may have.
//!
//! Owns: the list that unknown keys are held against, guesses at what was meant.
//! Does not own: types and bounds; those stand where a key is read.

/// The keys of one section. Where a `type` decides, each type has a shape of its own.
#[derive(Debug, PartialEq, Eq)]
pub struct Shape {
    /// The section, such as `store`; empty for the top of the plan, `feeds.*` for each feed.
    pub section: &'static str,
    /// The `type` that has these keys; empty where there is no such choice.
    pub variant: &'static str,
    /// The keys.
    pub keys: &'static [&'static str],
}

const fn shape(section: &'static str, variant: &'static str, keys: &'static [&'static str]) -> Shape {
    Shape { section, variant, keys }
}

/// All shapes. `kafka.properties` is not among them: its keys are librdkafka's.
pub const SHAPES: &[Shape] = &[
    shape(
        "",
        "",
        &[
            "name",
            "kafka",
            "schema_registry",
            "store",
            "offset_storage",
            "delivery",
            "flush",
            "format",
            "target",
            "memory",
            "http",
            "deadlines",
            "feeds",
        ],
    ),
    shape("kafka", "", &["bootstrap_servers", "group_id", "workers", "commit_group_offsets", "properties"]),
    shape("schema_registry", "", &["url", "username", "password", "timeout", "allow_http"]),
    shape(
        "store",
        "azure",
        &[
            "type",
            "account",
            "endpoint",
            "credential",
            "allow_http",
            "checksum",
            "create_container",
            "request_timeout",
            "concurrency",
        ],
    ),
    shape("store", "directory", &["type", "path"]),
    shape("store", "memory", &["type"]),
    shape("store.credential", "shared_key", &["type", "key"]),
    shape("store.credential", "sas", &["type", "sas"]),
    shape("offset_storage", "zookeeper", &["type", "connect", "root", "session_timeout"]),
    shape("offset_storage", "file", &["type", "path"]),
    shape("offset_storage", "memory", &["type"]),
    shape("delivery", "", &["mode"]),
    shape(
        "flush",
        "",
        &[
            "interval",
            "max_commit_size",
            "max_blob_size",
            "max_block_size",
            "max_records_per_blob",
            "max_blocks_per_blob",
            "max_open_blobs",
        ],
    ),
    shape("format", "", &["input", "output", "codec", "level", "on_bad_record"]),
    shape("target", "", &["container", "stream", "partition", "suffix", "layout"]),
    shape("memory", "", &["budget"]),
    shape("http", "", &["listen"]),
    shape("deadlines", "", &["revoke", "shutdown"]),
    shape(
        "feeds.*",
        "",
        &[
            "topics",
            "start",
            "container",
            "stream",
            "partition",
            "suffix",
            "layout",
            "flush",
            "delivery",
            "format",
            "target",
        ],
    ),
];

/// Keys that blobfeed will have, and what to do until then.
const LATER: &[(&str, &str)] = &[
    ("topics_regex", "List the topics by name in `topics`."),
    ("envelope", "Remove it: a record's value is written without key, headers and timestamp."),
    ("on_out_of_range", "Remove it: an offset outside the log stops its partition."),
    ("on_topic_recreated", "Remove it: use `offset_storage` entries of another plan name for a new topic."),
    ("on_missing_blob", "Remove it: it belongs to exactly_once."),
    ("state_container", "Remove it: it belongs to exactly_once."),
    ("persist_interval", "Remove it: an offset is persisted after each commit."),
    ("import_legacy", "Remove it: offsets under older spellings are not read."),
];

/// The shape of `section` for `variant`.
pub(super) fn shape_of(section: &str, variant: &str) -> &'static Shape {
    SHAPES
        .iter()
        .find(|shape| shape.section == section && shape.variant == variant)
        .expect("readers name sections that are listed here")
}

/// What to do about `key`, which `shape` does not have.
pub(super) fn remedy_for(shape: &Shape, key: &str) -> String {
    if let Some((_, remedy)) = LATER.iter().find(|(name, _)| *name == key) {
        return format!("`{key}` is not available in this version. {remedy}");
    }
    if let Some(near) = nearest(key, shape.keys.iter().copied()) {
        return format!("Did you mean `{near}`?");
    }
    let twin = SHAPES.iter().find(|other| {
        other.section == shape.section && other.variant != shape.variant && other.keys.contains(&key)
    });
    if let Some(twin) = twin {
        return format!("`{key}` belongs to type = {:?}; remove it, or change the type.", twin.variant);
    }
    let elsewhere = SHAPES.iter().find(|other| !other.section.is_empty() && other.keys.contains(&key));
    match elsewhere {
        Some(other) => format!("`{key}` belongs into [{}]; move it, or remove it.", other.section),
        None => "Remove it.".to_owned(),
    }
}

/// The one of `known` that `word` was probably meant to be.
pub(super) fn nearest<'a>(word: &str, known: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    let word = word.to_ascii_lowercase().replace(['-', '.', ' '], "_");
    known
        .map(|candidate| (strsim::damerau_levenshtein(&word, candidate), candidate))
        .filter(|(distance, candidate)| *distance <= 1.max(candidate.len().min(word.len()) / 3))
        .min_by_key(|(distance, _)| *distance)
        .map(|(_, candidate)| candidate)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn guesses() {
        let check = |section: &str, variant: &str, key: &str, expected: &str| {
            let remedy = remedy_for(shape_of(section, variant), key);
            assert!(remedy.contains(expected), "{key}: {remedy}");
        };
        check("flush", "", "intervall", "Did you mean `interval`?");
        check("flush", "", "max-blob-size", "Did you mean `max_blob_size`?");
        check("flush", "", "Interval", "Did you mean `interval`?");
        check("kafka", "", "bootstrap.servers", "Did you mean `bootstrap_servers`?");
        check("store", "azure", "path", "belongs to type = \"directory\"");
        check("kafka", "", "interval", "belongs into [flush]");
        check("feeds.*", "", "topics_regex", "not available in this version");
        check("memory", "", "colour", "Remove it.");
    }
}
