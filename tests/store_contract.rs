//! Every store keeps the promises of the port.

use std::sync::Arc;

use blobfeed::store::{DirectoryStore, MemoryStore, contract};

#[tokio::test]
async fn memory_keeps_the_contract() {
    let store = Arc::new(MemoryStore::new().with_page_size(3));
    contract::run(store, "contract").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_directory_keeps_the_contract() {
    let root = tempfile::tempdir().unwrap();
    let store = Arc::new(DirectoryStore::open(root.path()).unwrap().with_page_size(3));
    contract::run(store, "contract").await;
}
