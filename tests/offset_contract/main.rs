//! Every offset storage keeps the promises of the port; ZooKeeper's on a real server.
//!
//! Needs ZooKeeper at `BLOBFEED_TEST_ZOOKEEPER`, default `127.0.0.1:2181`.

#![allow(clippy::unwrap_used, reason = "these are tests")]

mod ensemble;
mod outages;
mod proxy;
mod zookeeper;

use std::sync::Arc;

use blobfeed::offset::{FileOffsets, MemoryOffsets, SharedOffsets, contract};

#[tokio::test]
async fn memory_keeps_the_contract() {
    let storage = MemoryOffsets::new();
    contract::run(|| Arc::new(storage.another_process()) as SharedOffsets, "plan").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_file_keeps_the_contract() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("offsets.json");
    contract::run(|| Arc::new(FileOffsets::new(&path).unwrap()) as SharedOffsets, "plan").await;
}
