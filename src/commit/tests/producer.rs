//! Sending and flushing, seen from outside.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering::SeqCst};
use std::time::Duration;

use tokio::time::timeout;

use crate::commit::{BlobProducer, Error, Flushed, ProducerOptions};
use crate::format::{BadRecord, Reason};
use crate::model::{BlobHeaders, BlobName, Metadata, RecordRef, Ssp};
use crate::producer::tests::{
    CONTAINER, Lines, NO_LIMITS, content, faulty, record, refused, store, transport, unavailable,
};
use crate::producer::{
    self, BlobDescription, BlobLimits, Envelope, Naming, NewBlob, OutputKey, WriterFactory,
};
use crate::store::{BlobStore, Fault, MemoryStore, OperationKind};

/// Lines in blobs named `<stream>/<partition>/<key>-<number>`; a value's first character is its output key.
pub(super) struct LinesFactory {
    limits: BlobLimits,
    next: AtomicU32,
}

impl WriterFactory for LinesFactory {
    fn output_key(&self, _: &Ssp, record: &RecordRef<'_>) -> Result<OutputKey, BadRecord> {
        match record.value.and_then(<[u8]>::first) {
            Some(b'!') => Err(BadRecord::new(Reason::Other(&"a bad one"), 0)),
            Some(first) => Ok(OutputKey(u32::from(*first))),
            None => Ok(OutputKey(0)),
        }
    }

    fn describe(&self, blob: &NewBlob<'_>) -> Result<BlobDescription, producer::Error> {
        let Ssp { stream, partition, .. } = blob.ssp;
        let number = self.next.fetch_add(1, SeqCst);
        let name = BlobName::new(format!("{stream}/{partition}/{}-{number:03}", blob.key.0))?;
        Ok(BlobDescription {
            destination: blob.destination(Naming::Fixed(name)),
            encoder: Box::new(Lines::holding(1024)),
            headers: BlobHeaders::default(),
            metadata: Metadata::new(),
            limits: self.limits,
        })
    }
}

pub(super) fn producer_with(store: &MemoryStore, limits: BlobLimits, memory: usize) -> BlobProducer {
    let factory = Arc::new(LinesFactory { limits, next: AtomicU32::new(0) });
    let options = ProducerOptions { memory, ..ProducerOptions::default() };
    BlobProducer::new(Arc::new(store.clone()), factory, options)
}

pub(super) fn producer(store: &MemoryStore) -> BlobProducer {
    let producer = producer_with(store, NO_LIMITS, 1 << 20);
    for source in ["a", "b"] {
        producer.register(source).unwrap();
    }
    producer
}

pub(super) fn envelope(stream: &str, offset: i64, value: &str) -> Envelope {
    let ssp = Ssp { container: CONTAINER.into(), stream: stream.into(), partition: "0".into() };
    Envelope { ssp, record: record(offset, value) }
}

pub(super) async fn send(producer: &BlobProducer, source: &str, offsets: std::ops::Range<i64>) {
    for offset in offsets {
        producer.send(source, &envelope(source, offset, &format!("x{offset}"))).await.unwrap();
    }
}

/// All committed text below `prefix`, in the order of names.
pub(super) async fn all(store: &MemoryStore, prefix: &str) -> String {
    let mut text = String::new();
    for name in store.list(CONTAINER, prefix, None).await.unwrap().names {
        let blob = crate::model::BlobRef { container: CONTAINER.into(), name };
        text += &content(store, &blob).await.unwrap();
    }
    text
}

pub(super) fn lines(offsets: std::ops::Range<i64>) -> String {
    offsets.map(|offset| format!("x{offset}\n")).collect()
}

fn names(flushed: &Flushed) -> Vec<String> {
    let mut names: Vec<_> = flushed.blobs.iter().map(|blob| blob.blob.name.to_string()).collect();
    names.sort();
    names
}

#[tokio::test]
async fn a_flush_commits_all_blobs_of_its_source_and_none_of_others() {
    let store = store().await;
    let producer = producer(&store);
    for (offset, (stream, value)) in
        [("s", "x0"), ("t", "x1"), ("s", "y2"), ("s", "x3")].into_iter().enumerate()
    {
        producer.send("a", &envelope(stream, offset as i64, value)).await.unwrap();
    }
    producer.send("b", &envelope("s", 9, "x9")).await.unwrap();
    assert_eq!(all(&store, "").await, "", "nothing is visible before a flush");

    let flushed = producer.flush("a").await.unwrap();
    assert_eq!(names(&flushed), ["s/0/120-000", "s/0/121-002", "t/0/120-001"]);
    assert_eq!(all(&store, "").await, "x0\nx3\ny2\nx1\n");
    assert_eq!(flushed.records(), 4);
    let found = flushed.blobs.iter().find(|blob| blob.blob.name.as_str() == "s/0/120-000").unwrap();
    assert_eq!((found.records, found.bytes), (2, 6));
    assert_eq!((found.range.first.get(), found.range.next.get()), (0, 4));
    let properties = store.properties(&found.blob).await.unwrap().unwrap();
    let metadata = |name: &str| properties.metadata.get(name).cloned().unwrap_or_default();
    assert_eq!(metadata("commit_id"), found.commit.to_string());
    assert_eq!((metadata("commit_first"), metadata("commit_next")), ("0".into(), "4".into()));

    assert_eq!(producer.flush("b").await.unwrap().records(), 1);
}

#[tokio::test]
async fn records_after_a_flush_go_to_a_new_blob() {
    let store = store().await;
    let producer = producer(&store);
    send(&producer, "a", 0..3).await;
    let first = producer.flush("a").await.unwrap();
    send(&producer, "a", 3..5).await;
    assert_eq!(all(&store, "").await, lines(0..3), "the first blob does not change");
    let second = producer.flush("a").await.unwrap();
    assert_eq!((names(&first), names(&second)), (vec!["a/0/120-000".into()], vec!["a/0/120-001".into()]));
    assert_eq!(all(&store, "").await, lines(0..5));
}

#[tokio::test]
async fn a_flush_without_records_makes_nothing() {
    let store = store().await;
    let producer = producer(&store);
    assert_eq!(producer.flush("a").await.unwrap(), Flushed::default());
    send(&producer, "a", 0..1).await;
    producer.flush("a").await.unwrap();
    assert_eq!(producer.flush("a").await.unwrap(), Flushed::default());
    assert_eq!(store.list(CONTAINER, "", None).await.unwrap().names.len(), 1);
}

#[tokio::test]
async fn blobs_that_are_full_go_on_in_new_ones_of_the_same_flush() {
    let store = store().await;
    let producer = producer_with(&store, BlobLimits { records: 10, ..NO_LIMITS }, 1 << 20);
    producer.register("a").unwrap();
    send(&producer, "a", 0..25).await;
    assert_eq!(all(&store, "").await, "", "a full blob is not visible before the flush either");
    let flushed = producer.flush("a").await.unwrap();
    let mut sizes: Vec<_> = flushed.blobs.iter().map(|blob| blob.records).collect();
    sizes.sort_unstable();
    assert_eq!(sizes, [5, 10, 10]);
    assert_eq!(all(&store, "").await, lines(0..25));
    assert_eq!(
        flushed.blobs.iter().map(|blob| blob.commit).collect::<std::collections::HashSet<_>>().len(),
        1
    );
}

#[tokio::test]
async fn a_record_that_cannot_be_written_is_refused_alone() {
    let store = store().await;
    let producer = producer(&store);
    send(&producer, "a", 0..1).await;
    let by_factory = producer.send("a", &envelope("a", 1, "!")).await.unwrap_err();
    assert!(matches!(by_factory, Error::Record(_)), "{by_factory}");
    let mut null = envelope("a", 2, "");
    null.record.value = None;
    let by_encoder = producer.send("a", &null).await.unwrap_err();
    assert!(matches!(by_encoder, Error::Record(_)), "{by_encoder}");
    let by_name = producer.send("a", &envelope("/a", 3, "x")).await.unwrap_err();
    assert!(matches!(by_name, Error::Seal(producer::Error::Name(_))), "{by_name}");
    send(&producer, "a", 4..5).await;
    assert_eq!(producer.flush("a").await.unwrap().blobs.len(), 1);
    assert_eq!(all(&store, "").await, "x0\nx4\n");
}

#[tokio::test(start_paused = true)]
async fn a_flush_that_was_given_up_goes_on_in_the_next_one() {
    let inner = store().await;
    let open = Arc::new(AtomicBool::new(false));
    let hit = {
        let open = open.clone();
        faulty(&inner, OperationKind::CommitBlockList, move |_, _| {
            (!open.load(SeqCst)).then(|| Fault::Before(unavailable()))
        })
    };
    let producer = producer(&hit);
    send(&producer, "a", 0..3).await;
    assert!(timeout(Duration::from_secs(60), producer.flush("a")).await.is_err());
    // The source takes records meanwhile; they are not part of what was begun.
    send(&producer, "a", 3..5).await;
    assert_eq!(all(&inner, "").await, "");
    open.store(true, SeqCst);
    let flushed = producer.flush("a").await.unwrap();
    assert_eq!(names(&flushed), ["a/0/120-000", "a/0/120-001"]);
    assert_eq!(flushed.records(), 5);
    assert_eq!(all(&inner, "").await, lines(0..5));
}

#[tokio::test(start_paused = true)]
async fn what_was_committed_while_nobody_looked_is_reported_by_the_next_flush() {
    let inner = store().await;
    // The second Put Block List hangs once.
    let hit = faulty(&inner, OperationKind::CommitBlockList, |n, _| match n {
        0 => Some(Fault::Before(unavailable())),
        2 => Some(Fault::SlowReply(Duration::from_secs(50))),
        _ => None,
    });
    let producer = producer(&hit);
    send(&producer, "a", 0..1).await;
    assert!(timeout(Duration::from_millis(1), producer.flush("a")).await.is_err());
    send(&producer, "a", 1..2).await;
    // Finishes the first commit, and is given up in the second one.
    assert!(timeout(Duration::from_secs(10), producer.flush("a")).await.is_err());
    assert_eq!(producer.flush("a").await.unwrap().records(), 2);
    assert_eq!(all(&inner, "").await, lines(0..2));
}

#[tokio::test(start_paused = true)]
async fn an_outage_of_one_source_does_not_hold_up_another() {
    let inner = store().await;
    let hit = inner.clone().with_faults(|operation| {
        let of_a = operation.blob.as_ref().is_some_and(|name| name.as_str().starts_with("a/"));
        of_a.then(|| Fault::Before(transport()))
    });
    let producer = Arc::new(producer(&hit));
    send(&producer, "a", 0..3).await;
    send(&producer, "b", 0..3).await;
    let stuck = tokio::spawn({
        let producer = producer.clone();
        async move { producer.flush("a").await }
    });
    tokio::task::yield_now().await;
    assert_eq!(producer.flush("b").await.unwrap().records(), 3);
    assert!(!stuck.is_finished());
    stuck.abort();
}

// The error of the first `send` that fails.
async fn send_until_failure(producer: &BlobProducer, source: &str) -> Error {
    for offset in 0..1000 {
        if let Err(error) = producer.send(source, &envelope(source, offset, "x")).await {
            return error;
        }
        tokio::task::yield_now().await;
    }
    panic!("no send failed");
}

#[tokio::test(start_paused = true)]
async fn a_failure_of_staging_is_told_by_the_next_send_and_ends_the_source_until_it_is_registered_anew() {
    let inner = store().await;
    let hit = faulty(&inner, OperationKind::StageBlock, |n, _| (n == 0).then(|| Fault::Before(refused())));
    let producer = producer_with(&hit, BlobLimits { block_bytes: 1, ..NO_LIMITS }, 1 << 20);
    for source in ["a", "b"] {
        producer.register(source).unwrap();
    }
    let error = send_until_failure(&producer, "a").await;
    assert!(matches!(error, Error::Seal(producer::Error::Staging { .. })), "{error}");
    // Told once; then the source refuses, so that nobody takes what follows for a success.
    let again = producer.send("a", &envelope("a", 0, "x")).await.unwrap_err();
    assert!(matches!(&again, Error::Source { name, .. } if name == "a"), "{again}");
    assert!(matches!(producer.flush("a").await, Err(Error::Source { .. })));
    send(&producer, "b", 0..1).await;
    assert_eq!(producer.flush("b").await.unwrap().records(), 1);

    producer.register("a").unwrap();
    send(&producer, "a", 0..3).await;
    assert_eq!(producer.flush("a").await.unwrap().records(), 3);
    assert_eq!(all(&inner, "a").await, lines(0..3), "nothing of what was given up");
}

#[tokio::test(start_paused = true)]
async fn a_failure_of_commit_ends_the_source_until_it_is_registered_anew() {
    let inner = store().await;
    let hit =
        faulty(&inner, OperationKind::CommitBlockList, |n, _| (n == 0).then(|| Fault::Before(refused())));
    let producer = producer(&hit);
    send(&producer, "a", 0..3).await;
    let error = producer.flush("a").await.unwrap_err();
    assert!(matches!(error, Error::Store { .. }), "{error}");
    assert!(matches!(producer.flush("a").await, Err(Error::Source { .. })));
    assert!(matches!(producer.send("a", &envelope("a", 3, "x")).await, Err(Error::Source { .. })));
    producer.register("a").unwrap();
    assert_eq!(producer.flush("a").await.unwrap(), Flushed::default(), "what was sent before is given up");
    send(&producer, "a", 0..3).await;
    producer.flush("a").await.unwrap();
    assert_eq!(all(&inner, "").await, lines(0..3));
}

#[tokio::test(start_paused = true)]
async fn a_lost_reply_at_the_end_of_a_flush_makes_one_blob_and_a_success() {
    let inner = store().await;
    let hit =
        faulty(&inner, OperationKind::CommitBlockList, |n, _| (n == 0).then(|| Fault::After(transport())));
    let producer = producer(&hit);
    send(&producer, "a", 0..3).await;
    assert_eq!(producer.flush("a").await.unwrap().records(), 3);
    assert_eq!(all(&inner, "").await, lines(0..3));
}
