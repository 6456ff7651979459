//! Reading, listing, deleting, and what is absent.

use super::{Subject, checks, headers, list, metadata};
use crate::model::{BlockContent, BlockId};
use crate::store::{Condition, Error};

checks! {
    a_missing_container_is_told_apart => "a missing container is told apart from a missing blob",
    an_existing_container_is_fine => "a container that is there is made again without harm",
    a_missing_blob_is_none => "a missing blob is no error",
    ranges_are_read => "ranges are read, and end with the blob",
    an_empty_blob_is_read => "an empty blob is there and has no bytes",
    listings_are_in_order => "listings are in byte order, by prefix, page by page",
    deleting_twice_is_fine => "deleting twice is fine",
    a_deleted_name_can_be_taken_again => "a deleted name can be taken again",
}

async fn a_missing_container_is_told_apart(subject: &Subject) {
    let missing = format!("missing-{:016x}", rand::random::<u64>());
    let blob = subject.blob_in(&missing, "x");
    let id = BlockId::new(40, 0, 0);
    let store = &subject.store;
    let content = BlockContent::from(vec![1]);
    let answers = [
        ("ensure", store.ensure_container(&missing, false).await),
        ("stage", store.stage_block(&blob, &id, &content).await.map(drop)),
        ("commit", store.commit_block_list(&blob, &list(&[id])).await.map(drop)),
        ("put", store.put(&blob, "x".into(), &headers(), &metadata(), &Condition::None).await.map(drop)),
        ("put if absent", subject.put(&blob, "x", Condition::Absent).await.map(drop)),
        ("properties", store.properties(&blob).await.map(drop)),
        ("read", store.read(&blob, 0, 10).await.map(drop)),
        ("list", store.list(&missing, "", None).await.map(drop)),
        ("delete", store.delete(&blob).await),
    ];
    for (call, answer) in answers {
        match answer {
            Err(Error::ContainerNotFound { container }) => assert_eq!(container, missing, "{call}"),
            other => panic!("{call}: {other:?}"),
        }
    }
}

async fn an_existing_container_is_fine(subject: &Subject) {
    subject.store.ensure_container(&subject.container, true).await.expect("made");
    subject.store.ensure_container(&subject.container, true).await.expect("made again");
    subject.store.ensure_container(&subject.container, false).await.expect("found");
    let error = subject.store.ensure_container("Not_A_Container", true).await.expect_err("a bad name");
    assert!(matches!(error, Error::Configuration { .. }), "{error:?}");
}

async fn a_missing_blob_is_none(subject: &Subject) {
    let blob = subject.blob("absent/blob");
    assert_eq!(subject.store.properties(&blob).await.expect("told"), None);
    for (from, max) in [(0, 10), (5, 10), (0, 0)] {
        assert_eq!(subject.store.read(&blob, from, max).await.expect("told"), None);
    }
    // Neither is a folder a blob.
    subject.make(&subject.blob("folder/blob"), b"x").await;
    let folder = subject.blob("folder");
    assert_eq!(subject.store.properties(&folder).await.expect("told"), None);
    assert_eq!(subject.content(&folder).await, None);
    subject.store.delete(&folder).await.expect("absent");
    // Nor is there anything below a blob.
    let below = subject.blob("folder/blob/x");
    assert_eq!(subject.store.properties(&below).await.expect("told"), None);
    assert_eq!(subject.content(&below).await, None);
    subject.store.delete(&below).await.expect("absent");
}

async fn ranges_are_read(subject: &Subject) {
    let blob = subject.blob("ranges");
    let ids = [0, 1, 2].map(|number| BlockId::new(41, number, 0));
    for (id, content) in ids.iter().zip([&b"0123"[..], b"456", b"789"]) {
        subject.stage(&blob, id, content).await;
    }
    subject.store.commit_block_list(&blob, &list(&ids)).await.expect("committed");
    let cases: [(u64, u64, &[u8]); 10] = [
        (0, 10, b"0123456789"),
        (0, 1, b"0"),
        (2, 4, b"2345"),
        (3, 1, b"3"),
        (9, 1, b"9"),
        (8, 100, b"89"),
        (10, 1, b""),
        (1_000_000, 5, b""),
        (4, 0, b""),
        (7, u64::MAX, b"789"),
    ];
    for (from, max, expected) in cases {
        let read = subject.store.read(&blob, from, max).await.expect("read").expect("there");
        assert_eq!(read, expected, "from {from}, at most {max}");
    }
}

async fn an_empty_blob_is_read(subject: &Subject) {
    let blob = subject.blob("empty-blob");
    subject.put(&blob, "", Condition::Absent).await.expect("put");
    assert_eq!(subject.store.properties(&blob).await.expect("told").expect("there").len, 0);
    for (from, max) in [(0, 10), (3, 10), (0, 0)] {
        let read = subject.store.read(&blob, from, max).await.expect("read");
        assert_eq!(read.as_deref(), Some(&b""[..]), "from {from}");
    }
}

async fn listings_are_in_order(subject: &Subject) {
    // '-' and '.' come before '/', digits and letters behind it: an order of folders is not an order of names.
    let mut names: Vec<String> =
        ["a-b", "a.b", "a/b", "a/b-c", "a/b.c/d", "a0", "aa/x", "b", "B", "ä", "z/1/2/3"]
            .map(str::to_owned)
            .into();
    names.extend((0..9).map(|i| format!("many/{i}")));
    for name in &names {
        subject.put(&subject.blob(&format!("list/{name}")), name, Condition::None).await.expect("put");
    }
    names.sort();
    let folder = format!("{}/list/", subject.folder);
    for (prefix, pages_at_least) in
        [("", 2), ("a", 1), ("a/", 1), ("a/b", 1), ("many/", 1), ("z/1/", 1), ("no", 1)]
    {
        let mut found = Vec::new();
        let mut pages = 0;
        let mut next: Option<String> = None;
        loop {
            let page = subject
                .store
                .list(&subject.container, &format!("{folder}{prefix}"), next.as_deref())
                .await
                .expect("listed");
            found.extend(page.names.iter().map(|name| name.as_str()[folder.len()..].to_owned()));
            pages += 1;
            assert!(pages < 100, "a listing has an end");
            next = page.next;
            if next.is_none() {
                break;
            }
        }
        let expected: Vec<String> = names.iter().filter(|name| name.starts_with(prefix)).cloned().collect();
        assert_eq!(found, expected, "{prefix:?}");
        assert!(pages >= pages_at_least, "{prefix:?}: {pages} pages");
    }
}

async fn deleting_twice_is_fine(subject: &Subject) {
    let blob = subject.blob("deleted");
    subject.make(&blob, b"x").await;
    subject.store.delete(&blob).await.expect("deleted");
    assert_eq!(subject.store.properties(&blob).await.expect("told"), None);
    assert_eq!(subject.content(&blob).await, None);
    subject.store.delete(&blob).await.expect("deleted again");
}

async fn a_deleted_name_can_be_taken_again(subject: &Subject) {
    let blob = subject.blob("again");
    let first = subject.make(&blob, b"first").await;
    subject.store.delete(&blob).await.expect("deleted");
    let second = subject.make(&blob, b"second").await;
    assert_ne!(first.etag, second.etag);
    assert_eq!(subject.content(&blob).await.as_deref(), Some(&b"second"[..]));
}
