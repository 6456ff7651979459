//! What becomes of one blob's commit, whatever the answers are.

use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::time::Duration;

use crate::commit::{CommitId, Error, commit_blob};
use crate::model::{BlobHeaders, BlockContent, BlockId, Metadata, Offset, OffsetRange, SealedBlob};
use crate::producer::tests::{blob, content, denied, faulty, refused, store, transport, unavailable};
use crate::store::{BlobStore, Condition, Fault, MemoryStore, OperationKind};
use crate::telemetry::Telemetry;

async fn sealed(store: &MemoryStore, name: &str) -> SealedBlob {
    let ids = [BlockId::new(1, 0, 0), BlockId::new(1, 1, 3)];
    for (id, text) in ids.iter().zip(["ours ", "whole"]) {
        store.stage_block(&blob(name), id, &BlockContent::from(text.as_bytes().to_vec())).await.unwrap();
    }
    SealedBlob {
        blob: blob(name),
        blocks: ids.to_vec(),
        headers: BlobHeaders { content_type: "text/plain".to_owned(), content_encoding: None },
        metadata: Metadata::from([("feed".to_owned(), "f".to_owned())]),
        records: 2,
        bytes: 10,
        range: range(0, 2),
    }
}

fn range(first: i64, next: i64) -> OffsetRange {
    OffsetRange { first: Offset::new(first).unwrap(), next: Offset::new(next).unwrap() }
}

async fn commit(store: &MemoryStore, sealed: &SealedBlob) -> Result<CommitId, Error> {
    let id = CommitId::random();
    commit_blob(store, sealed, id, range(0, 9), &Telemetry::new()).await.map(|()| id)
}

// Commits while the n-th Put Block List meets what `fault` says; the blob must then be ours and whole.
async fn survives(name: &str, fault: impl Fn(usize) -> Option<Fault> + Send + Sync + 'static) {
    let inner = store().await;
    let sealed = sealed(&inner, "b").await;
    let hit = faulty(&inner, OperationKind::CommitBlockList, move |n, _| fault(n));
    let id = commit(&hit, &sealed).await.unwrap_or_else(|error| panic!("{name}: {error}"));
    inner.deliver_late();
    assert_eq!(content(&inner, &blob("b")).await.unwrap(), "ours whole", "{name}");
    let found = inner.properties(&blob("b")).await.unwrap().unwrap();
    let metadata = |key: &str| found.metadata.get(key).map(String::as_str);
    assert_eq!(metadata("commit_id"), Some(id.to_string().as_str()), "{name}");
    assert_eq!((metadata("commit_first"), metadata("commit_next")), (Some("0"), Some("9")), "{name}");
    assert_eq!((metadata("feed"), found.headers.content_type.as_str()), (Some("f"), "text/plain"), "{name}");
}

#[tokio::test(start_paused = true)]
async fn a_commit_survives_what_may_heal() {
    survives("nothing goes wrong", |_| None).await;
    survives("busy for long", |n| (n < 300).then(|| Fault::Before(unavailable()))).await;
    survives("no connection", |n| (n < 7).then(|| Fault::Before(transport()))).await;
    survives("no permission for a while", |n| (n < 20).then(|| Fault::Before(denied()))).await;
    survives("slow", |_| Some(Fault::SlowReply(Duration::from_secs(100)))).await;
}

#[tokio::test(start_paused = true)]
async fn a_commit_whose_reply_was_lost_is_recognised_as_our_own() {
    survives("reset", |n| (n == 0).then(|| Fault::After(transport()))).await;
    survives("503 after the act", |n| (n == 0).then(|| Fault::After(unavailable()))).await;
    survives("arrives late", |n| (n == 0).then(|| Fault::Late(transport()))).await;
    survives("several late ones", |n| (n < 5).then(|| Fault::Late(unavailable()))).await;
}

#[tokio::test(start_paused = true)]
async fn a_refusal_after_an_unclear_attempt_is_recognised_as_our_own() {
    let inner = store().await;
    let sealed = sealed(&inner, "b").await;
    // The first attempt acts, its reply and the look at the blob are lost; the second is answered with 403, as where the
    // credential may create blobs and not replace them.
    let (attempts, looks) = (AtomicUsize::new(0), AtomicUsize::new(0));
    let hit = inner.clone().with_faults(move |operation| match operation.kind {
        OperationKind::CommitBlockList => Some(match attempts.fetch_add(1, SeqCst) {
            0 => Fault::After(transport()),
            _ => Fault::Before(denied()),
        }),
        OperationKind::Properties if looks.fetch_add(1, SeqCst) == 0 => Some(Fault::Before(transport())),
        _ => None,
    });
    commit(&hit, &sealed).await.unwrap();
    assert_eq!(content(&inner, &blob("b")).await.unwrap(), "ours whole");
}

#[tokio::test(start_paused = true)]
async fn a_foreign_blob_of_that_name_is_left_as_it_is() {
    let check = async |fault: fn(usize) -> Option<Fault>| {
        let inner = store().await;
        let sealed = sealed(&inner, "b").await;
        // Their blocks and ours share the name; whoever commits first takes it.
        let theirs = Metadata::from([("commit_id".to_owned(), "theirs".to_owned())]);
        inner
            .put(
                &blob("b"),
                bytes::Bytes::from_static(b"foreign"),
                &BlobHeaders::default(),
                &theirs,
                &Condition::None,
            )
            .await
            .unwrap();
        let hit = faulty(&inner, OperationKind::CommitBlockList, move |n, _| fault(n));
        match commit(&hit, &sealed).await {
            Err(Error::NameTaken { blob, winner }) => {
                assert_eq!((blob.as_str(), winner.as_deref()), ("data/b", Some("theirs")));
            }
            other => panic!("{other:?}"),
        }
        assert_eq!(content(&inner, &blob("b")).await.unwrap(), "foreign");
    };
    check(|_| None).await;
    check(|n| (n == 0).then(|| Fault::Before(transport()))).await;
    check(|n| (n < 2).then(|| Fault::Before(denied()))).await;
}

#[tokio::test(start_paused = true)]
async fn blocks_that_are_gone_and_refusals_for_good_end_the_commit() {
    let inner = store().await;
    let mut gone = sealed(&inner, "b").await;
    gone.blocks.push(BlockId::new(9, 0, 0));
    assert!(matches!(commit(&inner, &gone).await, Err(Error::BlocksGone { .. })));
    assert!(content(&inner, &blob("b")).await.is_none());

    let sealed = sealed(&inner, "c").await;
    let hit = faulty(&inner, OperationKind::CommitBlockList, |_, _| Some(Fault::Before(refused())));
    assert!(matches!(commit(&hit, &sealed).await, Err(Error::Store { .. })));
    assert!(content(&inner, &blob("c")).await.is_none());
}
