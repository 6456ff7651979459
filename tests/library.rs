//! What users of the library build on: the examples, run to their end.

#![allow(clippy::unwrap_used, reason = "these are tests")]

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Arc, Mutex};

use blobfeed::offset::{SharedOffsets, contract};

#[path = "../examples/custom_offset_storage.rs"]
mod custom_offset_storage;
#[path = "../examples/custom_writer.rs"]
mod custom_writer;

use custom_offset_storage::{Table, TableOffsets};

// The text of every file below `folder` that ends with `extension`.
fn files(folder: &Path, extension: &str) -> BTreeMap<String, String> {
    let mut found = BTreeMap::new();
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            found.extend(files(&path, extension));
        } else if path.to_string_lossy().ends_with(extension) {
            found.insert(path.to_string_lossy().into_owned(), std::fs::read_to_string(&path).unwrap());
        }
    }
    found
}

#[tokio::test]
async fn a_writer_of_ones_own_sees_keys_and_headers_and_decides_the_blobs() {
    let folder = tempfile::tempdir().unwrap();
    let (flushed, offset) = custom_writer::run(folder.path()).await.unwrap();
    assert_eq!(offset, "100");
    assert_eq!(flushed.blobs.iter().map(|blob| blob.records).collect::<Vec<_>>(), [50, 50]);
    let files = files(folder.path(), ".jsonl");
    assert_eq!(files.len(), 2);
    let mut tenants = Vec::new();
    for (path, text) in &files {
        assert!(path.contains("orders/shop/0/"), "{path}");
        let lines: Vec<serde_json::Value> =
            text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        assert_eq!(lines.len(), 50);
        let first = lines[0]["offset"].as_i64().unwrap();
        tenants.push(first);
        for (n, line) in lines.iter().enumerate() {
            let offset = first + 2 * n as i64;
            let tenant = if offset % 2 == 0 { "a" } else { "b" };
            let expected = serde_json::json!({
                "offset": offset,
                "timestamp": 1_800_000_000_000_i64 + offset,
                "key": format!("{tenant}-{offset}"),
                "headers": { "trace": format!("{offset:04x}") },
                "value": format!("order {offset}"),
            });
            assert_eq!(*line, expected);
        }
    }
    tenants.sort_unstable();
    assert_eq!(tenants, [0, 1]);
}

#[tokio::test]
async fn an_offset_storage_of_ones_own_keeps_the_contract() {
    let table = Arc::new(Mutex::new(Table::default()));
    contract::run(|| Arc::new(TableOffsets::new(table.clone())) as SharedOffsets, "plan").await;
}

#[tokio::test]
async fn the_example_of_an_offset_storage_tells_of_the_conflict() {
    let story = custom_offset_storage::run().await.unwrap();
    assert_eq!(story[0], "the second finds Some(\"100\")");
    assert!(story[1].contains("changed by somebody else"), "{story:?}");
    assert_eq!(story[2], "stored is Some(\"200\")");
}
