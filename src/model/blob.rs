//! Blobs and blocks: names, ids, and what a commit needs to know of a sealed blob.

use std::fmt;
use std::sync::Arc;

use bytes::Bytes;

use super::OffsetRange;

/// A blob's name that every store takes as it is.
///
/// Rules: 1 to 1,024 characters; no empty, `.` or `..` segment (nor one with `%2e`); no leading `/`; no `\`, NUL,
/// control character, or trailing dot in a segment. Source: "Naming and referencing containers, blobs, and
/// metadata" of the Azure Blob Storage documentation, narrowed to what a directory can hold too.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BlobName(Arc<str>);

/// A name that no blob may have, and why.
#[derive(Debug, thiserror::Error)]
#[error("{name:?} cannot be a blob name: {reason}")]
pub struct BadBlobName {
    /// The name, cut to a readable length.
    pub name: String,
    /// The rule that it breaks.
    pub reason: &'static str,
}

impl BlobName {
    /// # Errors
    /// [`BadBlobName`] with the first rule that `name` breaks.
    pub fn new(name: impl Into<Arc<str>>) -> Result<BlobName, BadBlobName> {
        let name = name.into();
        match fault(&name) {
            None => Ok(BlobName(name)),
            Some(reason) => Err(BadBlobName { name: name.chars().take(200).collect(), reason }),
        }
    }

    /// The name with `/` between segments, not escaped.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

fn fault(name: &str) -> Option<&'static str> {
    if name.is_empty() {
        return Some("it is empty");
    }
    if name.chars().count() > 1024 {
        return Some("it is longer than 1,024 characters");
    }
    if name.starts_with('/') {
        return Some("it starts with a slash");
    }
    if name.chars().any(|c| c == '\\' || c.is_control()) {
        return Some("it contains a backslash or a control character");
    }
    for segment in name.split('/') {
        if segment.is_empty() {
            return Some("it has an empty segment");
        }
        let plain = segment.replace("%2e", ".").replace("%2E", ".");
        if plain == "." || plain == ".." {
            return Some("it has a segment of dots only");
        }
        if plain.ends_with('.') {
            return Some("a segment ends with a dot");
        }
    }
    None
}

impl fmt::Display for BlobName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// A blob in a container.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BlobRef {
    /// The container's name.
    pub container: Arc<str>,
    /// The blob's name in it.
    pub name: BlobName,
}

impl fmt::Display for BlobRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.container, self.name)
    }
}

/// The id of a staged block: nonce of the attempt at the blob, number, try; one length for all blocks.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BlockId(Arc<str>);

impl BlockId {
    /// The id of the `try_number`-th try to stage block `number` under `nonce`.
    pub fn new(nonce: u64, number: u32, try_number: u32) -> BlockId {
        BlockId(format!("{nonce:016x}-{number:05}-{:04}", try_number % 10_000).into())
    }

    /// The id before base64, 27 ASCII characters.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for BlockId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// The bytes of one block, in the chunks that they were written in. Cloning shares them.
#[derive(Clone, Default)]
pub struct BlockContent {
    chunks: Arc<[Bytes]>,
    len: usize,
}

impl BlockContent {
    /// The content that `chunks` make, in order.
    pub fn new(chunks: Vec<Bytes>) -> BlockContent {
        let len = chunks.iter().map(Bytes::len).sum();
        BlockContent { chunks: chunks.into(), len }
    }

    /// The chunks, in order.
    pub fn chunks(&self) -> &[Bytes] {
        &self.chunks
    }

    /// Bytes in all chunks.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there is no byte.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// All bytes in one piece; copies, so for tests and small contents.
    pub fn to_vec(&self) -> Vec<u8> {
        self.chunks.concat()
    }
}

impl From<Vec<u8>> for BlockContent {
    fn from(bytes: Vec<u8>) -> BlockContent {
        BlockContent::new(vec![Bytes::from(bytes)])
    }
}

impl fmt::Debug for BlockContent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "BlockContent({} bytes in {} chunks)", self.len, self.chunks.len())
    }
}

/// The HTTP headers that a blob is served with.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct BlobHeaders {
    /// `Content-Type`.
    pub content_type: String,
    /// `Content-Encoding`, such as `gzip`.
    pub content_encoding: Option<String>,
}

/// A blob's metadata: names are lower-case identifiers, values ASCII.
pub type Metadata = std::collections::BTreeMap<String, String>;

/// A blob whose blocks are all staged and which takes no more records; what a commit needs to know.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SealedBlob {
    /// Where it will be.
    pub blob: BlobRef,
    /// Its blocks in order, never empty.
    pub blocks: Vec<BlockId>,
    /// Its HTTP headers.
    pub headers: BlobHeaders,
    /// Its metadata, without what only the commit knows.
    pub metadata: Metadata,
    /// Records in it.
    pub records: u64,
    /// Bytes in all its blocks.
    pub bytes: u64,
    /// From its first record to behind its last one.
    pub range: OffsetRange,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_a_store_could_misread_are_refused() {
        let bad = [
            "",
            "/a",
            "a//b",
            "a/",
            "a/./b",
            "../a",
            "a/%2e%2E/b",
            "a\\b",
            "a\0b",
            "a\nb",
            "a./b",
            "a.",
            "a%2e",
        ];
        for name in bad {
            assert!(BlobName::new(name).is_err(), "{name:?}");
        }
        assert!(BlobName::new("x".repeat(1025)).is_err());
        for name in ["a", "a/b.avro", "ä ü+/=.x", ".hidden/x", "a..b", &"é".repeat(1024)] {
            assert!(BlobName::new(name).is_ok(), "{name:?}");
        }
    }

    #[test]
    fn block_ids_have_one_length_and_differ_by_each_part() {
        let ids = [(1, 0, 0), (2, 0, 0), (1, 49_999, 0), (1, 0, 1), (u64::MAX, 1, 9_999)]
            .map(|(nonce, number, attempt)| BlockId::new(nonce, number, attempt));
        assert!(ids.iter().all(|id| id.as_str().len() == 27));
        assert_eq!(ids.iter().collect::<std::collections::BTreeSet<_>>().len(), ids.len());
    }
}
