//! Staging and committing.

use std::time::{Duration, SystemTime};

use bytes::Bytes;
use futures::FutureExt;

use super::{Subject, checks, headers, list, metadata};
use crate::model::{BlockContent, BlockId};
use crate::store::{Condition, Error};

checks! {
    blocks_make_a_blob_in_the_order_of_the_list => "blocks make a blob in the order of the list",
    headers_and_metadata_are_kept => "headers and metadata are kept",
    staged_blocks_are_invisible => "staged blocks are invisible",
    blocks_outside_of_the_list_are_left_out => "blocks outside of the list are left out",
    an_unknown_block_is_refused => "an unknown block is refused and makes nothing",
    tries_of_one_block_are_different_blocks => "tries of one block are different blocks",
    the_last_block_under_an_id_counts => "the last block under an id counts",
    content_of_many_chunks_arrives_whole => "content of many chunks arrives whole",
    empty_content_is_refused => "empty blocks and empty lists are refused",
    blocks_are_of_one_blob => "blocks belong to one blob",
    answers_are_dated => "answers are dated by the store",
    a_dropped_call_does_no_harm => "a dropped call does no harm",
    names_are_kept_as_they_are => "names are kept as they are",
}

async fn blocks_make_a_blob_in_the_order_of_the_list(subject: &Subject) {
    let blob = subject.blob("order");
    let ids = [0, 1, 2].map(|number| BlockId::new(1, number, 0));
    for (id, content) in ids.iter().zip(["one,", "two,", "three,"]) {
        subject.stage(&blob, id, content.as_bytes()).await;
    }
    let [a, b, c] = ids;
    let written = subject.store.commit_block_list(&blob, &list(&[c, a, b])).await.expect("committed");
    assert!(!written.etag.is_empty());
    assert_eq!(subject.etag(&blob).await, written.etag);
    assert_eq!(subject.content(&blob).await.as_deref(), Some(&b"three,one,two,"[..]));
}

async fn headers_and_metadata_are_kept(subject: &Subject) {
    let blob = subject.blob("labels");
    subject.make(&blob, b"12345").await;
    let properties = subject.store.properties(&blob).await.expect("told").expect("there");
    assert_eq!(properties.len, 5);
    assert_eq!(properties.headers, headers());
    assert_eq!(properties.metadata, metadata());

    let plain = subject.blob("labels-put");
    subject.put(&plain, "1234567", Condition::None).await.expect("put");
    let properties = subject.store.properties(&plain).await.expect("told").expect("there");
    assert_eq!(properties.len, 7);
    assert_eq!(properties.headers, headers());
    assert_eq!(properties.metadata, metadata());
}

async fn staged_blocks_are_invisible(subject: &Subject) {
    let blob = subject.blob("staged/only");
    let written = subject.stage(&blob, &BlockId::new(2, 0, 0), b"x").await;
    assert_eq!(written.etag, "");
    assert_eq!(subject.store.properties(&blob).await.expect("told"), None);
    assert_eq!(subject.content(&blob).await, None);
    let folder = format!("{}/staged", subject.folder);
    let page = subject.store.list(&subject.container, &folder, None).await.expect("listed");
    assert_eq!(page.names, []);
}

async fn blocks_outside_of_the_list_are_left_out(subject: &Subject) {
    let blob = subject.blob("left-out");
    let [kept, left] = [0, 1].map(|number| BlockId::new(3, number, 0));
    subject.stage(&blob, &left, b"left").await;
    subject.stage(&blob, &kept, b"kept").await;
    subject.store.commit_block_list(&blob, &list(&[kept])).await.expect("committed");
    assert_eq!(subject.content(&blob).await.as_deref(), Some(&b"kept"[..]));
}

async fn an_unknown_block_is_refused(subject: &Subject) {
    let blob = subject.blob("unknown");
    let known = BlockId::new(4, 0, 0);
    subject.stage(&blob, &known, b"x").await;
    let error = subject
        .store
        .commit_block_list(&blob, &list(&[known.clone(), BlockId::new(4, 1, 0)]))
        .await
        .expect_err("a block is missing");
    assert!(matches!(error, Error::UnknownBlock { .. }), "{error:?}");
    assert_eq!(subject.store.properties(&blob).await.expect("told"), None);
    // The block that was there still is.
    subject.store.commit_block_list(&blob, &list(&[known])).await.expect("committed");
}

async fn tries_of_one_block_are_different_blocks(subject: &Subject) {
    let blob = subject.blob("tries");
    let [first, second] = [0, 1].map(|attempt| BlockId::new(5, 0, attempt));
    subject.stage(&blob, &first, b"first try").await;
    subject.stage(&blob, &second, b"second try").await;
    // A late first try must not change what the second one staged.
    subject.stage(&blob, &first, b"late first try").await;
    subject.store.commit_block_list(&blob, &list(&[second])).await.expect("committed");
    assert_eq!(subject.content(&blob).await.as_deref(), Some(&b"second try"[..]));
}

async fn the_last_block_under_an_id_counts(subject: &Subject) {
    let blob = subject.blob("restaged");
    let id = BlockId::new(6, 0, 0);
    subject.stage(&blob, &id, b"old and long").await;
    subject.stage(&blob, &id, b"new").await;
    subject.store.commit_block_list(&blob, &list(&[id])).await.expect("committed");
    assert_eq!(subject.content(&blob).await.as_deref(), Some(&b"new"[..]));
}

async fn content_of_many_chunks_arrives_whole(subject: &Subject) {
    // 2 blocks of 10 MiB in chunks of uneven lengths, empty ones among them.
    let bytes: Vec<u8> = (0..10_u32 << 20).map(|i| (i.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
    let bytes = Bytes::from(bytes);
    let mut chunks = vec![Bytes::new()];
    let mut at = 0;
    while at < bytes.len() {
        let end = (at + 1 + (at * 7) % 70_000).min(bytes.len());
        chunks.push(bytes.slice(at..end));
        at = end;
    }
    chunks.push(Bytes::new());
    let content = BlockContent::new(chunks);
    let blob = subject.blob("large");
    let ids = [0, 1].map(|number| BlockId::new(7, number, 0));
    for id in &ids {
        subject.store.stage_block(&blob, id, &content).await.expect("staged");
    }
    subject.store.commit_block_list(&blob, &list(&ids)).await.expect("committed");
    let read = subject.content(&blob).await.expect("there");
    assert_eq!(read.len(), 2 * bytes.len());
    assert!(read[..bytes.len()] == bytes && read[bytes.len()..] == bytes, "the bytes differ");
}

async fn empty_content_is_refused(subject: &Subject) {
    let blob = subject.blob("empty");
    for content in [BlockContent::new(Vec::new()), BlockContent::new(vec![Bytes::new()])] {
        let error = subject.store.stage_block(&blob, &BlockId::new(8, 0, 0), &content).await;
        assert!(matches!(error, Err(Error::Refused { .. })), "{error:?}");
    }
    let error = subject.store.commit_block_list(&blob, &list(&[])).await;
    assert!(matches!(error, Err(Error::Refused { .. })), "{error:?}");
    assert_eq!(subject.store.properties(&blob).await.expect("told"), None);
}

async fn blocks_are_of_one_blob(subject: &Subject) {
    let (blob, other) = (subject.blob("mine"), subject.blob("theirs"));
    let id = BlockId::new(9, 0, 0);
    subject.stage(&blob, &id, b"mine").await;
    let error = subject.store.commit_block_list(&other, &list(&[id])).await.expect_err("not staged there");
    assert!(matches!(error, Error::UnknownBlock { .. }), "{error:?}");
}

async fn answers_are_dated(subject: &Subject) {
    let day = Duration::from_secs(24 * 3600);
    let near = |date: SystemTime| {
        let now = SystemTime::now();
        assert!(date > now - day && date < now + day, "{date:?} is not about now");
    };
    let blob = subject.blob("dated");
    let id = BlockId::new(10, 0, 0);
    near(subject.stage(&blob, &id, b"x").await.date);
    near(subject.store.commit_block_list(&blob, &list(&[id])).await.expect("committed").date);
    near(subject.store.properties(&blob).await.expect("told").expect("there").date);
    near(subject.put(&blob, "x", Condition::None).await.expect("put").date);
}

async fn a_dropped_call_does_no_harm(subject: &Subject) {
    let blob = subject.blob("dropped");
    let ids = [0, 1].map(|number| BlockId::new(11, number, 0));
    let content = BlockContent::from(vec![7; 1 << 20]);
    // Polled once and dropped: the store may have seen all, a part or nothing of it.
    let _ = subject.store.stage_block(&blob, &ids[0], &content).now_or_never();
    subject.store.stage_block(&blob, &ids[1], &content).await.expect("staged");
    let commit = list(&ids[1..]);
    let _ = subject.store.commit_block_list(&blob, &commit).now_or_never();
    match subject.store.commit_block_list(&blob, &commit).await {
        // The dropped commit may have happened after all.
        Ok(_) | Err(Error::AlreadyExists { .. }) => {
            let content = subject.content(&blob).await.expect("committed by one of the two");
            assert!(content == vec![7; 1 << 20], "a part of a blob is visible");
        }
        // Or it is under way and has taken the blocks.
        Err(Error::UnknownBlock { .. }) => {
            let content = subject.content(&blob).await;
            assert!(content.is_none_or(|content| content == vec![7; 1 << 20]), "a part of a blob is visible");
        }
        Err(error) => panic!("{error:?}"),
    }
}

async fn names_are_kept_as_they_are(subject: &Subject) {
    let names = [
        "with space/and more",
        "plus+plus",
        "equals=sign/day=01",
        "ümläut/日本",
        "percent%41%2Fx",
        "amp&question?hash#",
        "quote'\"<>",
        "~tilde!*();:@$,[]",
        ".hidden/.file",
        "orders+3+0000000042 ü.avro",
    ];
    for name in names {
        let blob = subject.blob(&format!("names/{name}"));
        subject.make(&blob, name.as_bytes()).await;
        assert_eq!(subject.content(&blob).await.as_deref(), Some(name.as_bytes()), "{name}");
        let page = subject.store.list(&subject.container, blob.name.as_str(), None).await.expect("listed");
        assert_eq!(page.names, std::slice::from_ref(&blob.name), "{name}");
        subject.store.delete(&blob).await.expect("deleted");
        assert_eq!(subject.content(&blob).await, None, "{name}");
    }
}
