//! The first command of the README does what it says, with nothing running but itself.

mod harness;

use std::collections::BTreeMap;
use std::path::Path;

use harness::avro;
use harness::connector::call;

const RECORDS: u64 = 20_000;

/// How often each record is in the blobs below `folder`, read by fastavro.
async fn found(folder: &Path) -> BTreeMap<u64, usize> {
    let mut found = BTreeMap::new();
    for container in avro::read(&folder.join("store")).await {
        for record in container.records {
            *found.entry(record["sequence"].as_u64().expect("a number")).or_default() += 1;
        }
    }
    found
}

fn quickstart(folder: &Path, more: &[&str]) -> harness::Exit {
    let records = RECORDS.to_string();
    let mut arguments = vec!["quickstart", "--records", &records, "--dir", folder.to_str().expect("UTF-8")];
    arguments.extend_from_slice(more);
    call(&arguments)
}

#[tokio::test(flavor = "multi_thread")]
async fn without_a_kill_n_records_make_exactly_n() {
    let parent = tempfile::tempdir().expect("a folder");
    let folder = parent.path().join("data");
    quickstart(&folder, &["--no-kill"]).demand(0, &["inspect"]);
    let found = found(&folder).await;
    assert_eq!(found, (0..RECORDS).map(|number| (number, 1)).collect::<BTreeMap<u64, usize>>());
    // The commands that it names work.
    let blob = avro::summaries(&folder.join("store")).await.remove(0);
    call(&["inspect", &blob.file]).demand(0, &["zstandard", &blob.count.to_string(), "sequence"]);
    call(&["check", folder.join("plan.toml").to_str().expect("UTF-8")]).demand(0, &["shop.orders"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_kill_midway_loses_nothing() {
    let parent = tempfile::tempdir().expect("a folder");
    quickstart(parent.path(), &[]).demand(0, &["SIGKILL"]);
    let found = found(parent.path()).await;
    assert_eq!(found.len() as u64, RECORDS);
    assert_eq!(found.keys().next_back(), Some(&(RECORDS - 1)));
}

#[test]
fn a_folder_with_something_in_it_is_left_alone() {
    let parent = tempfile::tempdir().expect("a folder");
    std::fs::write(parent.path().join("mine"), "precious").expect("a file");
    quickstart(parent.path(), &[]).demand(3, &["not empty"]);
    assert_eq!(std::fs::read_dir(parent.path()).expect("a folder").count(), 1);
}
