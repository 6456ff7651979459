//! Writing, staging and sealing against the store in memory.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use futures::future::join_all;
use tokio::runtime::Handle;

use super::*;
use crate::budget::{Budget, Tail};
use crate::commit::{CommitId, commit_blob};
use crate::format::{BadRecord, Encoder, Facts, Reason};
use crate::model::{
    BlobHeaders, BlobName, BlobRef, Metadata, Offset, OffsetRange, Record, RecordRef, SealedBlob,
};
use crate::store::{self, BlobStore, Condition, Fault, MemoryStore, Operation, OperationKind};
use crate::telemetry::Telemetry;

pub(crate) const CONTAINER: &str = "data";
pub(crate) const NO_LIMITS: BlobLimits =
    BlobLimits { block_bytes: usize::MAX, blob_bytes: u64::MAX, records: u64::MAX, blocks: u32::MAX };

/// Writes each value on a line of its own, and gives bytes out when flushed or when `hold` bytes have gathered.
pub(crate) struct Lines {
    hold: usize,
    held: Vec<u8>,
    facts: Facts,
}

impl Lines {
    pub(crate) fn holding(hold: usize) -> Lines {
        Lines { hold, held: Vec::new(), facts: Facts::default() }
    }
}

impl Encoder for Lines {
    fn append(&mut self, record: &RecordRef<'_>, out: &mut Tail) -> Result<(), BadRecord> {
        let value = record.value.ok_or(BadRecord::new(Reason::NullValue, 0))?;
        self.held.extend_from_slice(value);
        self.held.push(b'\n');
        self.facts.records += 1;
        self.facts.raw_bytes += value.len() as u64;
        if self.held.len() >= self.hold {
            self.flush(out);
        }
        Ok(())
    }

    fn flush(&mut self, out: &mut Tail) {
        out.push_slice(&self.held);
        self.held.clear();
    }

    fn buffered(&self) -> usize {
        self.held.len()
    }

    fn facts(&self) -> Facts {
        self.facts
    }
}

pub(crate) fn record(offset: i64, value: &str) -> Record {
    Record { offset: Offset::new(offset).unwrap(), value: Some(value.to_owned().into()), ..Record::default() }
}

pub(crate) fn blob(name: &str) -> BlobRef {
    BlobRef { container: CONTAINER.into(), name: BlobName::new(name).unwrap() }
}

pub(crate) fn transport() -> store::Error {
    store::Error::Transport {
        operation: "request",
        resource: "blob".to_owned(),
        source: "connection reset".into(),
    }
}

pub(crate) fn unavailable() -> store::Error {
    store::Error::Unavailable {
        operation: "request",
        resource: "blob".to_owned(),
        status: 503,
        code: "ServerBusy".to_owned(),
        retry_after: None,
    }
}

pub(crate) fn refused() -> store::Error {
    store::Error::Refused {
        operation: "request",
        resource: "blob".to_owned(),
        status: 400,
        code: "InvalidInput".to_owned(),
        message: "no".to_owned(),
    }
}

pub(crate) fn denied() -> store::Error {
    store::Error::Denied {
        operation: "request",
        resource: "blob".to_owned(),
        status: 403,
        code: "AuthorizationPermissionMismatch".to_owned(),
        hint: "grant it".to_owned(),
    }
}

/// An empty store with the container.
pub(crate) async fn store() -> MemoryStore {
    let store = MemoryStore::new();
    store.ensure_container(CONTAINER, true).await.unwrap();
    store
}

/// The store through a fault that the n-th call of `kind` (from 0) meets as `fault` says.
pub(crate) fn faulty(
    store: &MemoryStore,
    kind: OperationKind,
    fault: impl Fn(usize, &Operation) -> Option<Fault> + Send + Sync + 'static,
) -> MemoryStore {
    let calls = AtomicUsize::new(0);
    store.clone().with_faults(move |operation| {
        if operation.kind != kind {
            return None;
        }
        fault(calls.fetch_add(1, Ordering::SeqCst), operation)
    })
}

/// The text of a committed blob.
pub(crate) async fn content(store: &MemoryStore, blob: &BlobRef) -> Option<String> {
    let bytes = store.read(blob, 0, u64::MAX).await.unwrap()?;
    Some(String::from_utf8(bytes.to_vec()).unwrap())
}

struct Bench {
    store: MemoryStore,
    stager: Stager,
    budget: Budget,
    telemetry: Telemetry,
    claims: Claims,
}

impl Bench {
    fn new(store: MemoryStore) -> Bench {
        let (budget, telemetry) = (Budget::new(16 << 20), Telemetry::new());
        let shared = Arc::new(store.clone());
        let stager = Stager::new(shared, Handle::current(), 8, budget.clone(), telemetry.clone());
        Bench { store, stager, budget, telemetry, claims: Claims::default() }
    }

    fn writer_to(&self, naming: Naming, limits: BlobLimits) -> BlobWriter {
        let destination = Destination::new(CONTAINER.into(), naming, self.claims.clone());
        let description = BlobDescription {
            destination,
            encoder: Box::new(Lines::holding(64)),
            headers: BlobHeaders::default(),
            metadata: Metadata::from([("feed".to_owned(), "f".to_owned())]),
            limits,
        };
        BlobWriter::new(&self.stager, &self.telemetry.metrics.feed("f"), description)
    }

    fn writer(&self, name: &str, limits: BlobLimits) -> BlobWriter {
        self.writer_to(Naming::Fixed(BlobName::new(name).unwrap()), limits)
    }

    // As the commit module does it.
    async fn commit(&self, pending: PendingBlob) -> SealedBlob {
        let (sealed, _claim) = pending.sealed().await.unwrap();
        let (id, range) = (CommitId::random(), sealed.range);
        commit_blob(&self.store, &sealed, id, range, &self.telemetry).await.unwrap();
        sealed
    }
}

fn write(writer: &mut BlobWriter, offsets: std::ops::Range<i64>) {
    for offset in offsets {
        writer.write(&record(offset, &offset.to_string()).as_ref()).unwrap();
    }
}

fn close(writer: &mut BlobWriter) -> PendingBlob {
    writer.flush().unwrap();
    writer.close().unwrap().expect("there are records")
}

fn lines(offsets: std::ops::Range<i64>) -> String {
    offsets.map(|offset| format!("{offset}\n")).collect()
}

fn limits(block_bytes: usize) -> BlobLimits {
    BlobLimits { block_bytes, ..NO_LIMITS }
}

#[tokio::test]
async fn blocks_are_cut_as_records_arrive_and_make_one_blob_in_order() {
    let bench = Bench::new(store().await);
    let mut writer = bench.writer("b", limits(100));
    write(&mut writer, 0..1000);
    let sealed = bench.commit(close(&mut writer)).await;
    assert!(sealed.blocks.len() > 20, "{} blocks", sealed.blocks.len());
    assert_eq!(content(&bench.store, &blob("b")).await.unwrap(), lines(0..1000));
    assert_eq!((sealed.records, sealed.bytes), (1000, lines(0..1000).len() as u64));
    assert_eq!(sealed.range, OffsetRange { first: Offset::ZERO, next: Offset::new(1000).unwrap() });
    for (name, value) in [
        ("feed", "f"),
        ("first_offset", "0"),
        ("last_offset", "999"),
        ("record_count", "1000"),
        ("raw_bytes", "2890"),
    ] {
        assert_eq!(sealed.metadata.get(name).map(String::as_str), Some(value), "{name}");
    }
    drop(writer);
    assert_eq!(bench.budget.used(), 0, "all memory is given back");
    assert_eq!(bench.budget.in_flight(), 0);
}

#[tokio::test(start_paused = true)]
async fn five_hundred_failures_of_staging_are_survived() {
    let inner = store().await;
    let kinds: [fn() -> store::Error; 2] = [transport, unavailable];
    let hit = faulty(&inner, OperationKind::StageBlock, move |n, _| {
        (n < 500).then(|| Fault::Before(kinds[n % 2]()))
    });
    let bench = Bench::new(hit);
    let mut writer = bench.writer("b", limits(64));
    write(&mut writer, 0..100);
    let pending = close(&mut writer);
    tokio::time::sleep(Duration::from_secs(30)).await;
    let ill = || bench.telemetry.health.reasons().iter().any(|reason| reason.subject.starts_with("store "));
    assert!(ill(), "an outage shows while it lasts");
    bench.commit(pending).await;
    assert_eq!(content(&inner, &blob("b")).await.unwrap(), lines(0..100));
    assert!(!ill(), "and not after it");
}

#[tokio::test(start_paused = true)]
async fn a_block_whose_reply_was_lost_is_repeated_under_another_id() {
    let inner = store().await;
    let hit = faulty(&inner, OperationKind::StageBlock, |n, _| (n == 0).then(|| Fault::After(transport())));
    let bench = Bench::new(hit);
    let mut writer = bench.writer("b", NO_LIMITS);
    write(&mut writer, 0..5);
    let (sealed, _claim) = close(&mut writer).sealed().await.unwrap();
    let staged = inner.staged_blocks(&blob("b"));
    assert_eq!(staged.len(), 2, "both tries have arrived");
    assert_eq!(sealed.blocks, staged[1..], "the blob names the one that was answered");
    commit_blob(&inner, &sealed, CommitId::random(), sealed.range, &bench.telemetry).await.unwrap();
    assert_eq!(content(&inner, &blob("b")).await.unwrap(), lines(0..5));
}

#[tokio::test(start_paused = true)]
async fn a_block_that_arrives_after_the_commit_changes_nothing() {
    let inner = store().await;
    let hit = faulty(&inner, OperationKind::StageBlock, |n, _| (n == 0).then(|| Fault::Late(transport())));
    let bench = Bench::new(hit);
    let mut writer = bench.writer("b", NO_LIMITS);
    write(&mut writer, 0..5);
    bench.commit(close(&mut writer)).await;
    assert_eq!(inner.deliver_late(), 1);
    assert_eq!(content(&inner, &blob("b")).await.unwrap(), lines(0..5));
}

#[tokio::test(start_paused = true)]
async fn the_middle_one_of_three_uploads_may_be_last() {
    let inner = store().await;
    let hit = inner.clone().with_faults({
        let tries = AtomicUsize::new(0);
        move |operation| {
            let middle = operation.kind == OperationKind::StageBlock
                && operation.blob.as_ref().is_some_and(|name| name.as_str() == "middle");
            (middle && tries.fetch_add(1, Ordering::SeqCst) < 20).then(|| Fault::Before(denied()))
        }
    });
    let bench = Bench::new(hit);
    let names = ["first", "middle", "last"];
    let mut pending = Vec::new();
    for (n, name) in names.into_iter().enumerate() {
        let mut writer = bench.writer(name, limits(64));
        let first = n as i64 * 100;
        write(&mut writer, first..first + 100);
        pending.push(close(&mut writer));
    }
    join_all(pending.into_iter().map(|pending| bench.commit(pending))).await;
    for (n, name) in names.into_iter().enumerate() {
        let first = n as i64 * 100;
        assert_eq!(content(&inner, &blob(name)).await.unwrap(), lines(first..first + 100), "{name}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_failure_for_good_is_told_by_the_next_check() {
    let inner = store().await;
    let hit = faulty(&inner, OperationKind::StageBlock, |n, _| (n == 1).then(|| Fault::Before(refused())));
    let bench = Bench::new(hit);
    let mut writer = bench.writer("b", limits(64));
    while bench.store.staged_blocks(&blob("b")).is_empty() {
        write(&mut writer, 0..100);
        tokio::task::yield_now().await;
    }
    tokio::time::sleep(Duration::from_millis(1)).await;
    let error = writer.check().unwrap_err();
    assert!(matches!(error, Error::Staging { .. }), "{error}");
}

#[tokio::test]
async fn close_takes_flushed_bytes_only_and_then_every_call_is_refused() {
    let bench = Bench::new(store().await);
    let mut writer = bench.writer("b", NO_LIMITS);
    write(&mut writer, 0..3);
    assert!(matches!(writer.close(), Err(Error::Unflushed { bytes: 6 })));
    // The mistake can be made good.
    write(&mut writer, 3..4);
    let pending = close(&mut writer);
    assert!(matches!(writer.write(&record(9, "x").as_ref()), Err(Error::Closed)));
    assert!(matches!(writer.flush(), Err(Error::Closed)));
    assert!(matches!(writer.close(), Err(Error::Closed)));
    bench.commit(pending).await;
    assert_eq!(content(&bench.store, &blob("b")).await.unwrap(), lines(0..4));
}

#[tokio::test]
async fn a_blob_without_records_is_never_made() {
    let bench = Bench::new(store().await);
    let mut writer = bench.writer("b", NO_LIMITS);
    writer.flush().unwrap();
    assert!(writer.close().unwrap().is_none());
    let mut blobs = OpenBlobs::new(4);
    let null = Record::default();
    let bad = blobs.write(OutputKey(0), &null.as_ref(), || Ok(bench.writer("c", NO_LIMITS)));
    assert!(matches!(bad, Err(Error::BadRecord(_))));
    assert!(blobs.is_empty() && blobs.seal_all().unwrap().is_empty());
    tokio::task::yield_now().await;
    assert!(bench.store.list(CONTAINER, "", None).await.unwrap().names.is_empty());
    assert!(bench.store.staged_blocks(&blob("c")).is_empty());
}

#[tokio::test]
async fn a_bad_record_leaves_the_blob_as_it_was() {
    let bench = Bench::new(store().await);
    let mut writer = bench.writer("b", NO_LIMITS);
    write(&mut writer, 0..2);
    assert!(matches!(writer.write(&Record::default().as_ref()), Err(Error::BadRecord(_))));
    write(&mut writer, 3..4);
    let sealed = bench.commit(close(&mut writer)).await;
    assert_eq!(sealed.records, 3);
    assert_eq!(content(&bench.store, &blob("b")).await.unwrap(), "0\n1\n3\n");
}

// Writes 100 records of one byte to one key; gives the records of each blob.
async fn blob_sizes(limits: BlobLimits) -> Vec<u64> {
    let bench = Bench::new(store().await);
    let mut blobs = OpenBlobs::new(4);
    let names = AtomicUsize::new(0);
    for offset in 0..100 {
        let open = || {
            let name = names.fetch_add(1, Ordering::SeqCst);
            Ok(bench.writer(&format!("b{name}"), limits))
        };
        blobs.write(OutputKey(0), &record(offset, "x").as_ref(), open).unwrap();
    }
    let pending = blobs.seal_all().unwrap();
    let mut sizes = Vec::new();
    let mut next = Offset::ZERO;
    for pending in pending {
        let sealed = bench.commit(pending).await;
        assert_eq!(sealed.range.first, next, "blobs follow each other");
        assert_eq!(sealed.range.len(), sealed.records);
        next = sealed.range.next;
        assert!(sealed.blocks.len() <= limits.blocks as usize);
        sizes.push(sealed.records);
    }
    sizes
}

#[tokio::test]
async fn a_blob_is_sealed_by_bytes_records_or_blocks() {
    let check = async |limits, expected: &[u64]| assert_eq!(blob_sizes(limits).await, expected, "{limits:?}");
    check(NO_LIMITS, &[100]).await;
    check(BlobLimits { blob_bytes: 80, ..NO_LIMITS }, &[40, 40, 20]).await;
    check(BlobLimits { records: 33, ..NO_LIMITS }, &[33, 33, 33, 1]).await;
    // The encoder gives out 64 bytes at a time, each of which is a block here; the third block is kept for the rest.
    check(BlobLimits { block_bytes: 64, blocks: 3, ..NO_LIMITS }, &[64, 36]).await;
    check(BlobLimits { block_bytes: 1, blocks: 2, records: 1, ..NO_LIMITS }, &[1; 100]).await;
}

#[tokio::test]
async fn interleaved_keys_do_not_make_tiny_blobs() {
    let bench = Bench::new(store().await);
    let mut blobs = OpenBlobs::new(3);
    for offset in 0..900 {
        let key = (offset % 3) as u32;
        let open = || Ok(bench.writer(&format!("k{key}"), limits(256)));
        blobs.write(OutputKey(key), &record(offset, &offset.to_string()).as_ref(), open).unwrap();
    }
    assert_eq!(blobs.open_count(), 3);
    assert_eq!(blobs.records(), 900);
    let sealed = join_all(blobs.seal_all().unwrap().into_iter().map(|pending| bench.commit(pending))).await;
    assert_eq!(sealed.iter().map(|blob| blob.records).collect::<Vec<_>>(), [300; 3]);
    let every_third: String = (0..300).map(|n| format!("{}\n", n * 3 + 1)).collect();
    assert_eq!(content(&bench.store, &blob("k1")).await.unwrap(), every_third);
}

#[tokio::test]
async fn beyond_the_number_of_open_blobs_the_one_unused_longest_is_sealed() {
    let bench = Bench::new(store().await);
    let mut blobs = OpenBlobs::new(2);
    let mut send = |offset: i64, key: u32| {
        let open = || Ok(bench.writer(&format!("{key}-{offset}"), NO_LIMITS));
        blobs.write(OutputKey(key), &record(offset, "x").as_ref(), open).unwrap();
        assert!(blobs.open_count() <= 2);
    };
    for (offset, key) in [(0, 1), (1, 2), (2, 1), (3, 3), (4, 1), (5, 2)] {
        send(offset, key);
    }
    let pending = blobs.seal_all().unwrap();
    let mut names: Vec<_> = pending.iter().map(PendingBlob::label).collect();
    names.sort();
    assert_eq!(names, ["data/1-0", "data/2-1", "data/2-5", "data/3-3"]);
}

// Names of the form <second>; the first candidate is second 0.
fn seconds() -> Naming {
    Naming::NextFree(Box::new(|n| BlobName::new(n.to_string())))
}

#[tokio::test]
async fn two_blobs_of_one_second_get_different_names() {
    let bench = Bench::new(store().await);
    let foreign = bytes::Bytes::from_static(b"theirs");
    bench
        .store
        .put(&blob("1"), foreign, &BlobHeaders::default(), &Metadata::new(), &Condition::None)
        .await
        .unwrap();
    let mut writers: Vec<_> = (0..3).map(|_| bench.writer_to(seconds(), NO_LIMITS)).collect();
    for (n, writer) in writers.iter_mut().enumerate() {
        write(writer, n as i64..n as i64 + 1);
    }
    let sealed = join_all(writers.iter_mut().map(|writer| bench.commit(close(writer)))).await;
    let mut names: Vec<_> = sealed.iter().map(|sealed| sealed.blob.name.to_string()).collect();
    names.sort();
    assert_eq!(names, ["0", "2", "3"], "1 was taken at the store");
    assert_eq!(content(&bench.store, &blob("1")).await.unwrap(), "theirs");
}

#[tokio::test(start_paused = true)]
async fn a_name_is_free_again_when_its_blob_is_given_up() {
    let hit = faulty(&store().await, OperationKind::Properties, |n, _| {
        (n == 0).then_some(Fault::Delay(Duration::from_secs(3600)))
    });
    let bench = Bench::new(hit.clone());
    let slow = Destination::new(CONTAINER.into(), seconds(), bench.claims.clone());
    // In the middle of the look-up.
    let look = tokio::time::timeout(Duration::from_secs(1), slow.resolve(&hit)).await;
    assert!(look.is_err());
    let second = Destination::new(CONTAINER.into(), seconds(), bench.claims.clone());
    assert_eq!(*second.resolve(&hit).await.unwrap(), blob("0"));
    // While another one holds it, and after that.
    let third = Destination::new(CONTAINER.into(), seconds(), bench.claims.clone());
    assert_eq!(*third.resolve(&hit).await.unwrap(), blob("1"));
    drop(second);
    let fourth = Destination::new(CONTAINER.into(), seconds(), bench.claims.clone());
    assert_eq!(*fourth.resolve(&hit).await.unwrap(), blob("0"));
}

#[tokio::test(start_paused = true)]
async fn no_more_requests_are_under_way_than_allowed() {
    let under_way = Arc::new(AtomicUsize::new(0));
    let most = Arc::new(AtomicUsize::new(0));
    let (bench, inner) = {
        let inner = store().await;
        let (under_way, most) = (under_way.clone(), most.clone());
        let hit = faulty(&inner, OperationKind::StageBlock, move |_, _| {
            let now = under_way.fetch_add(1, Ordering::SeqCst) + 1;
            most.fetch_max(now, Ordering::SeqCst);
            let under_way = under_way.clone();
            tokio::spawn(async move {
                tokio::time::sleep(Duration::from_secs(1)).await;
                under_way.fetch_sub(1, Ordering::SeqCst);
            });
            Some(Fault::Delay(Duration::from_secs(1)))
        });
        (Bench::new(hit), inner)
    };
    let mut writer = bench.writer("b", limits(64));
    write(&mut writer, 0..1000);
    bench.commit(close(&mut writer)).await;
    let most = most.load(Ordering::SeqCst);
    assert!((8..=9).contains(&most), "{most} at once");
    assert_eq!(content(&inner, &blob("b")).await.unwrap(), lines(0..1000));
}
