//! What every store refuses before it sends or writes anything.
//!
//! Owns: the rules of Azure for containers, metadata, blocks and block lists, applied by all stores alike, so that a
//! plan that works with one works with the others.
//! Does not own: names of blobs; those are checked by [`BlobName`](crate::model::BlobName).

use super::{BlockList, Error};
use crate::model::{BlobRef, BlockContent, Metadata};

/// The most blocks that a blob may have ("Scalability and performance targets for Blob Storage").
const MAX_BLOCKS: usize = 50_000;
/// The most bytes of a block: 4,000 MiB.
const MAX_BLOCK: usize = 4_000 << 20;
/// The most bytes of all metadata of a blob, names included.
const MAX_METADATA: usize = 8 << 10;

/// Container names: 3 to 63 of `a-z`, `0-9` and `-`; no hyphen at either end or next to another.
pub(super) fn container(name: &str) -> Result<(), Error> {
    let plain = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit();
    let reason = if !(3..=63).contains(&name.len()) {
        "it must have 3 to 63 characters"
    } else if !name.bytes().all(|b| plain(b) || b == b'-') {
        "only a to z, 0 to 9 and - may be in it"
    } else if name.starts_with('-') || name.ends_with('-') {
        "it must begin and end with a letter or a digit"
    } else if name.contains("--") {
        "two hyphens must not follow each other"
    } else {
        return Ok(());
    };
    let name: String = name.chars().take(80).collect();
    Err(Error::Configuration { reason: format!("{name:?} cannot be a container: {reason}") })
}

/// Metadata that arrives as it was sent: it travels in HTTP headers.
pub(super) fn metadata(operation: &'static str, blob: &BlobRef, metadata: &Metadata) -> Result<(), Error> {
    let refuse = |message: String| Err(refused(operation, blob, "InvalidMetadata", message));
    let mut size = 0;
    for (name, value) in metadata {
        size += name.len() + value.len();
        let head = name.as_bytes().first().copied().unwrap_or(b'0');
        let tail = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'_';
        if head.is_ascii_digit() || !name.bytes().all(tail) {
            return refuse(format!("{name:?} is not a lower-case identifier"));
        }
        if value.is_empty() || value.trim() != value || !value.bytes().all(|b| (0x20..0x7f).contains(&b)) {
            return refuse(format!("the value of {name:?} is not printable ASCII without spaces around it"));
        }
    }
    if size > MAX_METADATA {
        return refuse(format!("{size} bytes of metadata are more than {MAX_METADATA}"));
    }
    Ok(())
}

/// A block has at least one byte: Azure refuses a Put Block without any.
pub(super) fn block(blob: &BlobRef, content: &BlockContent) -> Result<(), Error> {
    match content.len() {
        0 => Err(refused("Put Block", blob, "EmptyBlock", "a block cannot be empty".to_owned())),
        n if n > MAX_BLOCK => {
            let message = format!("a block of {n} bytes is longer than {MAX_BLOCK}");
            Err(refused("Put Block", blob, "RequestBodyTooLarge", message))
        }
        _ => Ok(()),
    }
}

/// A list names at least one block: an empty one would make an empty blob under a final name.
pub(super) fn block_list(blob: &BlobRef, list: &BlockList) -> Result<(), Error> {
    let operation = "Put Block List";
    match list.blocks.len() {
        0 => Err(refused(operation, blob, "EmptyBlockList", "a block list cannot be empty".to_owned())),
        n if n > MAX_BLOCKS => {
            let message = format!("a block list of {n} ids is longer than {MAX_BLOCKS}");
            Err(refused(operation, blob, "BlockListTooLong", message))
        }
        _ => metadata(operation, blob, &list.metadata),
    }
}

/// The answer that Azure would give, given before anybody is asked.
pub(super) fn refused(operation: &'static str, blob: &BlobRef, code: &str, message: String) -> Error {
    Error::Refused { operation, resource: blob.to_string(), status: 400, code: code.to_owned(), message }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::BlobName;

    fn blob() -> BlobRef {
        BlobRef { container: "data".into(), name: BlobName::new("a/b.avro").unwrap() }
    }

    #[test]
    fn containers_follow_the_rules_of_azure() {
        let long = "a".repeat(63);
        for good in ["abc", "oss-testcontainer", "0-1", &long] {
            assert!(container(good).is_ok(), "{good}");
        }
        let longer = "a".repeat(64);
        for bad in ["", "ab", "Abc", "a_b", "-ab", "ab-", "a--b", "a.b", "a/b", "..", "$web", "äbc", &longer]
        {
            let error = container(bad).unwrap_err();
            assert!(matches!(error, Error::Configuration { .. }), "{bad}: {error}");
        }
    }

    #[test]
    fn metadata_that_would_change_on_its_way_is_refused() {
        let check = |name: &str, value: &str, good: bool| {
            let map = Metadata::from([(name.to_owned(), value.to_owned())]);
            assert_eq!(metadata("Put Blob", &blob(), &map).is_ok(), good, "{name}={value}");
        };
        check("first_offset", "17", true);
        check("_x9", "a b=c,d", true);
        check("FirstOffset", "17", false);
        check("first-offset", "17", false);
        check("9a", "17", false);
        check("", "17", false);
        check("topic", "tö", false);
        check("topic", " a", false);
        check("topic", "", false);
        check("topic", "a\nb", false);
        check("topic", &"x".repeat(MAX_METADATA), false);
    }

    #[test]
    fn empty_blocks_are_refused() {
        assert!(block(&blob(), &BlockContent::new(Vec::new())).is_err());
        assert!(block(&blob(), &BlockContent::from(vec![1])).is_ok());
    }
}
