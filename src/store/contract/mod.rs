//! What every store promises, as checks that each of them passes.
//!
//! Owns: one check per promise of [`BlobStore`](super::BlobStore).
//! Does not own: what only one store does, such as retries asked for by Azure or files in a folder.

use std::panic::AssertUnwindSafe;

use bytes::Bytes;
use futures::FutureExt;
use futures::future::BoxFuture;

use super::{BlockList, Condition, SharedStore, Written};
use crate::model::{BlobHeaders, BlobName, BlobRef, BlockContent, BlockId, Metadata};

mod blocks;
mod conditions;
mod reading;

type Check = for<'a> fn(&'a Subject) -> BoxFuture<'a, ()>;

/// A store under test, and a folder of its own in a container.
struct Subject {
    store: SharedStore,
    container: String,
    folder: String,
}

/// Runs every check against `store`, in a fresh folder of `container`, which is made when it is absent. Pages of
/// listings should be small, or the check of paging has but one page to look at.
///
/// # Panics
/// When a promise is broken; the message names all that are.
pub async fn run(store: SharedStore, container: &str) {
    let folder = format!("contract-{:016x}", rand::random::<u64>());
    store.ensure_container(container, true).await.expect("the container is there or can be made");
    let subject = Subject { store, container: container.to_owned(), folder };
    let mut broken = Vec::new();
    for (promise, check) in all_checks() {
        if let Err(panic) = AssertUnwindSafe(check(&subject)).catch_unwind().await {
            let text = panic
                .downcast_ref::<String>()
                .map(String::as_str)
                .or_else(|| panic.downcast_ref::<&str>().copied())
                .unwrap_or("a panic without words");
            broken.push(format!("- {promise}: {text}"));
        }
    }
    assert!(broken.is_empty(), "broken promises:\n{}", broken.join("\n"));
}

fn all_checks() -> Vec<(&'static str, Check)> {
    [blocks::CHECKS, conditions::CHECKS, reading::CHECKS].concat()
}

impl Subject {
    fn blob(&self, name: &str) -> BlobRef {
        self.blob_in(&self.container, name)
    }

    fn blob_in(&self, container: &str, name: &str) -> BlobRef {
        let name = BlobName::new(format!("{}/{name}", self.folder)).expect("names of the contract are good");
        BlobRef { container: container.into(), name }
    }

    async fn stage(&self, blob: &BlobRef, id: &BlockId, content: &[u8]) -> Written {
        let content = BlockContent::from(content.to_vec());
        self.store.stage_block(blob, id, &content).await.expect("a block is staged")
    }

    /// Commits one block of `content` under `blob`.
    async fn make(&self, blob: &BlobRef, content: &[u8]) -> Written {
        let id = BlockId::new(rand::random(), 0, 0);
        self.stage(blob, &id, content).await;
        self.store.commit_block_list(blob, &list(&[id])).await.expect("a list is committed")
    }

    async fn put(
        &self,
        blob: &BlobRef,
        content: &str,
        condition: Condition,
    ) -> Result<Written, super::Error> {
        let bytes = Bytes::copy_from_slice(content.as_bytes());
        self.store.put(blob, bytes, &headers(), &metadata(), &condition).await
    }

    async fn content(&self, blob: &BlobRef) -> Option<Vec<u8>> {
        let bytes = self.store.read(blob, 0, u64::from(u32::MAX)).await.expect("a blob is read");
        bytes.map(|bytes| bytes.to_vec())
    }

    async fn etag(&self, blob: &BlobRef) -> String {
        self.store.properties(blob).await.expect("properties are told").expect("the blob is there").etag
    }
}

/// A list of `blocks`, conditioned on absence as commits are.
fn list(blocks: &[BlockId]) -> BlockList {
    BlockList {
        blocks: blocks.to_vec(),
        headers: headers(),
        metadata: metadata(),
        condition: Condition::Absent,
    }
}

fn headers() -> BlobHeaders {
    BlobHeaders { content_type: "avro/binary".to_owned(), content_encoding: Some("gzip".to_owned()) }
}

fn metadata() -> Metadata {
    // The last three are in another order for Azure's signatures than by bytes.
    [("first_offset", "17"), ("topic", "a.b_c-d e"), ("part_1", "x"), ("part1", "y"), ("parta", "z")]
        .map(|(name, value)| (name.to_owned(), value.to_owned()))
        .into()
}

/// A table of checks, each named by the promise that it keeps.
macro_rules! checks {
    ($($check:ident => $promise:literal,)*) => {
        pub(super) const CHECKS: &[(&str, super::Check)] = &[
            $(($promise, |subject| futures::FutureExt::boxed($check(subject))),)*
        ];
    };
}
use checks;
