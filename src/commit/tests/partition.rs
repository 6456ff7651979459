//! The order of a partition's commits and offsets.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::time::Duration;

use proptest::prelude::*;
use tokio::runtime::Handle;
use tokio::sync::mpsc;
use tokio::time::timeout;

use super::persister::{Gated, key};
use crate::budget::Budget;
use crate::commit::{Commit, CommitEvent, PartitionCommitter, Persister, Shared};
use crate::model::{BlobHeaders, BlobName, Metadata, Offset, OffsetRange, Slot};
use crate::offset::memory::{Fault as OffsetFault, MemoryOffsets, Operation};
use crate::offset::{OffsetStorage, PersistOffset};
use crate::producer::tests::{
    CONTAINER, Lines, NO_LIMITS, blob, content, record, refused, store, transport, unavailable,
};
use crate::producer::{BlobDescription, BlobWriter, Claims, Destination, Naming, PendingBlob, Stager};
use crate::store::{Fault, MemoryStore, OperationKind};
use crate::telemetry::Telemetry;

const SLOT: Slot = Slot(7);

fn at(offset: i64) -> Offset {
    Offset::new(offset).unwrap()
}

fn range(first: i64, next: i64) -> OffsetRange {
    OffsetRange { first: at(first), next: at(next) }
}

struct Bench {
    store: MemoryStore,
    storage: Arc<Gated>,
    stager: Stager,
    telemetry: Telemetry,
    committer: PartitionCommitter,
    events: mpsc::Receiver<CommitEvent>,
}

impl Bench {
    fn new(store: MemoryStore, storage: Arc<Gated>, position: Option<i64>) -> Bench {
        let telemetry = Telemetry::new();
        let runtime = Handle::current();
        let persister = Arc::new(Persister::start(&runtime, storage.clone(), telemetry.clone()));
        let shared = Shared { store: Arc::new(store.clone()), persister, telemetry: telemetry.clone() };
        let (sender, events) = mpsc::channel(16);
        let committer = PartitionCommitter::start(&runtime, shared, SLOT, key("0"), position.map(at), sender);
        let budget = Budget::new(1 << 20);
        let stager = Stager::new(Arc::new(store.clone()), runtime, 4, budget, telemetry.clone());
        Bench { store, storage, stager, telemetry, committer, events }
    }

    // A sealed blob with one record per offset, named after the range.
    fn blob(&self, range: OffsetRange) -> PendingBlob {
        let name = BlobName::new(format!("{}-{}", range.first, range.next)).unwrap();
        let description = BlobDescription {
            destination: Destination::new(CONTAINER.into(), Naming::Fixed(name), Claims::default()),
            encoder: Box::new(Lines::holding(64)),
            headers: BlobHeaders::default(),
            metadata: Metadata::new(),
            limits: NO_LIMITS,
        };
        let mut writer = BlobWriter::new(&self.stager, &self.telemetry.metrics.feed("f"), description);
        for offset in range.first.get()..range.next.get() {
            writer.write(&record(offset, &offset.to_string()).as_ref()).unwrap();
        }
        writer.flush().unwrap();
        writer.close().unwrap().unwrap()
    }

    fn submit(&self, range: OffsetRange) {
        let blobs = vec![self.blob(range)];
        assert!(self.committer.submit(Commit { range, blobs }).is_ok());
    }

    async fn event(&mut self) -> String {
        match timeout(Duration::from_secs(3600), self.events.recv()).await.expect("an event comes") {
            Some(CommitEvent::Committed { slot: SLOT, range, .. }) => format!("committed {range}"),
            Some(CommitEvent::Persisted { slot: SLOT, next, .. }) => format!("persisted {next}"),
            Some(CommitEvent::Failed { slot: SLOT, .. }) => "failed".to_owned(),
            Some(other) => panic!("of another slot: {other:?}"),
            None => "end".to_owned(),
        }
    }

    async fn stored(&self) -> Option<String> {
        self.storage.inner.another_process().find_latest_persisted_offset(&key("0")).await.unwrap()
    }
}

fn open_storage() -> Arc<Gated> {
    Gated::new(MemoryOffsets::new(), 100_000)
}

#[tokio::test(start_paused = true)]
async fn the_first_position_is_persisted_before_anything_is_committed() {
    let storage = Gated::new(MemoryOffsets::new(), 0);
    let mut bench = Bench::new(store().await, storage, Some(40));
    bench.submit(range(40, 42));
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert!(content(&bench.store, &blob("40-42")).await.is_none());
    bench.storage.gate.add_permits(1);
    assert_eq!(bench.event().await, "persisted 40");
    assert_eq!(bench.stored().await.as_deref(), Some("40"));
    assert_eq!(bench.event().await, "committed [40, 42)");
    assert_eq!(bench.stored().await.as_deref(), Some("40"), "not before the storage answers");
    bench.storage.gate.add_permits(1);
    assert_eq!(bench.event().await, "persisted 42");
    assert_eq!(bench.stored().await.as_deref(), Some("42"));
}

#[tokio::test(start_paused = true)]
async fn a_range_without_records_moves_the_offset_and_makes_no_blob() {
    let mut bench = Bench::new(store().await, open_storage(), None);
    assert!(bench.committer.submit(Commit { range: range(5, 9), blobs: Vec::new() }).is_ok());
    assert_eq!(bench.event().await, "committed [5, 9)");
    assert_eq!(bench.event().await, "persisted 9");
    assert_eq!(bench.stored().await.as_deref(), Some("9"));
}

#[tokio::test(start_paused = true)]
async fn a_later_commit_never_overtakes_an_earlier_one() {
    let inner = store().await;
    let (released, hit) = {
        let released = Arc::new(AtomicBool::new(false));
        let open = released.clone();
        let hit = inner.clone().with_faults(move |operation| {
            let first = operation.blob.as_ref().is_some_and(|name| name.as_str() == "0-3");
            let held = operation.kind == OperationKind::CommitBlockList && first && !open.load(SeqCst);
            held.then(|| Fault::Before(unavailable()))
        });
        (released, hit)
    };
    let mut bench = Bench::new(hit, open_storage(), None);
    bench.submit(range(0, 3));
    bench.submit(range(3, 5));
    tokio::time::sleep(Duration::from_secs(600)).await;
    assert!(content(&inner, &blob("3-5")).await.is_none());
    assert!(bench.stored().await.is_none());
    released.store(true, SeqCst);
    assert_eq!(bench.event().await, "committed [0, 3)");
    let mut rest = vec![bench.event().await, bench.event().await];
    if !rest.contains(&"persisted 5".to_owned()) {
        rest.push(bench.event().await);
    }
    assert!(rest.contains(&"committed [3, 5)".to_owned()), "{rest:?}");
    assert_eq!(bench.stored().await.as_deref(), Some("5"));
}

#[tokio::test(start_paused = true)]
async fn all_blocks_of_a_commit_are_staged_before_its_first_blob_is_visible() {
    let inner = store().await;
    let hit = inner.clone().with_faults(|operation| {
        let second = operation.blob.as_ref().is_some_and(|name| name.as_str() == "2-4");
        (operation.kind == OperationKind::StageBlock && second).then(|| Fault::Before(unavailable()))
    });
    let bench = Bench::new(hit, open_storage(), None);
    let blobs = vec![bench.blob(range(0, 2)), bench.blob(range(2, 4))];
    assert!(bench.committer.submit(Commit { range: range(0, 4), blobs }).is_ok());
    tokio::time::sleep(Duration::from_secs(600)).await;
    assert!(content(&inner, &blob("0-2")).await.is_none());
}

#[tokio::test(start_paused = true)]
async fn a_slow_offset_storage_does_not_hold_up_the_next_commit() {
    let mut bench = Bench::new(store().await, Gated::new(MemoryOffsets::new(), 0), None);
    for n in 0..4 {
        bench.submit(range(n, n + 1));
        assert_eq!(bench.event().await, format!("committed [{n}, {})", n + 1));
    }
    assert!(bench.stored().await.is_none());
    bench.storage.gate.add_permits(10);
    assert_eq!(bench.event().await, "persisted 1");
    assert_eq!(bench.event().await, "persisted 4", "what lies between need not be written");
    assert_eq!(bench.stored().await.as_deref(), Some("4"));
}

#[tokio::test(start_paused = true)]
async fn after_a_failed_commit_nothing_later_is_committed_or_persisted() {
    let inner = store().await;
    let hit = inner.clone().with_faults(|operation| {
        let second = operation.blob.as_ref().is_some_and(|name| name.as_str() == "1-2");
        (operation.kind == OperationKind::CommitBlockList && second).then(|| Fault::Before(refused()))
    });
    let mut bench = Bench::new(hit, open_storage(), None);
    for n in 0..4 {
        bench.submit(range(n, n + 1));
    }
    let mut events = Vec::new();
    while events.last().is_none_or(|event| event != "end") {
        events.push(bench.event().await);
    }
    let tail = &events[events.len() - 2..];
    assert_eq!(tail, ["failed", "end"], "{events:?}");
    assert!(!bench.committer.has_room(), "the task has ended");
    let late = Commit { range: range(4, 5), blobs: Vec::new() };
    assert!(bench.committer.submit(late).is_err(), "and says so");
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert!(content(&inner, &blob("0-1")).await.is_some());
    for name in ["1-2", "2-3", "3-4"] {
        assert!(content(&inner, &blob(name)).await.is_none(), "{name}");
    }
    assert_eq!(bench.stored().await.as_deref(), Some("1"));
}

#[tokio::test(start_paused = true)]
async fn an_offset_that_somebody_else_moved_ends_the_partition() {
    let storage = open_storage();
    assert!(storage.find_latest_persisted_offset(&key("0")).await.unwrap().is_none());
    let mut bench = Bench::new(store().await, storage.clone(), None);
    let theirs = [PersistOffset { key: key("0"), offset: "50".to_owned() }];
    storage.inner.another_process().persist_offsets(&theirs).await.remove(0).unwrap();
    bench.submit(range(0, 1));
    assert_eq!(bench.event().await, "committed [0, 1)");
    assert_eq!(bench.event().await, "failed");
    assert_eq!(bench.event().await, "end");
    assert_eq!(bench.stored().await.as_deref(), Some("50"));
}

#[tokio::test(start_paused = true)]
async fn a_commit_beyond_the_queue_is_given_back() {
    let inner = store().await;
    let hit = inner.clone().with_faults(|_| Some(Fault::Before(transport())));
    let bench = Bench::new(hit, open_storage(), None);
    tokio::task::yield_now().await;
    let mut taken = 0;
    while bench.committer.has_room() {
        bench.submit(range(taken, taken + 1));
        taken += 1;
        assert!(taken < 100, "the queue is bounded");
    }
    let back = bench.committer.submit(Commit { range: range(taken, taken + 1), blobs: Vec::new() });
    assert_eq!(back.err().map(|commit| commit.range), Some(range(taken, taken + 1)));
}

/// What the world does to the n-th request.
#[derive(Debug, Clone, Copy)]
enum Weather {
    Fine,
    Fails,
    ReplyLost,
    Slow(u64),
}

fn weather() -> impl Strategy<Value = Weather> {
    prop_oneof![
        4 => Just(Weather::Fine),
        1 => Just(Weather::Fails),
        1 => Just(Weather::ReplyLost),
        2 => (1_u64..2_000).prop_map(Weather::Slow),
    ]
}

// What was committed and persisted at some moment.
fn check_now(committed: &[OffsetRange], persisted: Option<i64>) {
    for pair in committed.windows(2) {
        assert_eq!(pair[0].next, pair[1].first, "committed ranges chain");
    }
    let reached = committed.last().map_or(0, |range| range.next.get());
    assert!(persisted.unwrap_or(0) <= reached, "persisted {persisted:?}, committed up to {reached}");
}

async fn run(lengths: Vec<i64>, pauses: Vec<u64>, blobs: Vec<Weather>, offsets: Vec<Weather>) {
    let inner = store().await;
    let (stored, puts) = (blobs.clone(), std::sync::atomic::AtomicUsize::new(0));
    let hit = inner.clone().with_faults(move |operation| {
        if !matches!(operation.kind, OperationKind::CommitBlockList | OperationKind::StageBlock) {
            return None;
        }
        match stored.get(puts.fetch_add(1, SeqCst)).copied().unwrap_or(Weather::Fine) {
            Weather::Fine => None,
            Weather::Fails => Some(Fault::Before(unavailable())),
            Weather::ReplyLost => Some(Fault::After(transport())),
            Weather::Slow(millis) => Some(Fault::Delay(Duration::from_millis(millis))),
        }
    });
    let writes = std::sync::atomic::AtomicUsize::new(0);
    let storage = MemoryOffsets::new().with_faults(Arc::new(move |operation| {
        let Operation::Persist(_) = operation else { return None };
        match offsets.get(writes.fetch_add(1, SeqCst)).copied().unwrap_or(Weather::Fine) {
            Weather::Fine => None,
            Weather::Fails => Some(OffsetFault::Before),
            Weather::ReplyLost => Some(OffsetFault::After),
            Weather::Slow(millis) => Some(OffsetFault::Stall(Duration::from_millis(millis))),
        }
    }));
    let mut bench = Bench::new(hit, Gated::new(storage, 100_000), None);
    let end: i64 = lengths.iter().sum();
    let mut queue = lengths.into_iter().zip(pauses).peekable();
    let (mut next, mut committed, mut persisted) = (0, Vec::new(), 0);
    while persisted < end {
        if bench.committer.has_room()
            && let Some((length, pause)) = queue.next()
        {
            bench.submit(range(next, next + length));
            next += length;
            tokio::time::sleep(Duration::from_millis(pause)).await;
        }
        let wait = if queue.peek().is_some() { Duration::from_millis(1) } else { Duration::from_secs(3600) };
        let event = timeout(wait, bench.events.recv()).await;
        let seen = bench.stored().await.map(|text| text.parse::<i64>().unwrap());
        match event {
            Err(_) => assert!(queue.peek().is_some(), "it goes on by itself"),
            Ok(Some(CommitEvent::Committed { range, .. })) => {
                let name = format!("{}-{}", range.first, range.next);
                let text = content(&inner, &blob(&name)).await.expect("a committed blob is visible");
                let expected: String =
                    (range.first.get()..range.next.get()).map(|offset| format!("{offset}\n")).collect();
                assert_eq!(text, expected);
                committed.push(range);
            }
            Ok(Some(CommitEvent::Persisted { next, .. })) => {
                assert!(next.get() > persisted, "offsets ascend");
                persisted = next.get();
                check_now(&committed, Some(persisted));
            }
            Ok(other) => panic!("{other:?}"),
        }
        // The storage may be ahead of the events, but never of the blobs.
        if let Some(seen) = seen {
            let mut reached = 0;
            let page = crate::store::BlobStore::list(&inner, CONTAINER, "", None).await.unwrap();
            let mut ranges: Vec<(i64, i64)> = page
                .names
                .iter()
                .filter_map(|name| name.as_str().split_once('-'))
                .map(|(first, next)| (first.parse().unwrap(), next.parse().unwrap()))
                .collect();
            ranges.sort_unstable();
            for (first, next) in ranges {
                assert_eq!(first, reached, "blobs chain");
                reached = next;
            }
            assert!(seen <= reached, "stored {seen}, blobs up to {reached}");
        }
        check_now(&committed, None);
    }
    assert_eq!(committed.last().map(|range| range.next.get()), Some(end));
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    #[test]
    fn whatever_the_weather_persisted_is_never_ahead_of_committed(
        lengths in prop::collection::vec(1_i64..30, 1..12),
        pauses in prop::collection::vec(0_u64..3_000, 12),
        blobs in prop::collection::vec(weather(), 0..40),
        offsets in prop::collection::vec(weather(), 0..20),
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .start_paused(true)
            .build()
            .unwrap();
        runtime.block_on(run(lengths, pauses, blobs, offsets));
    }
}
