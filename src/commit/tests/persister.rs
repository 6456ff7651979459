//! Offsets in batches, against storages in memory.

use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use tokio::runtime::Handle;
use tokio::sync::Semaphore;
use tokio::time::{Instant, timeout};

use crate::commit::Persister;
use crate::model::{FeedPartitionKey, Offset};
use crate::offset::memory::{Fault, MemoryOffsets, Operation};
use crate::offset::{Error, OffsetStorage, PersistOffset};
use crate::telemetry::Telemetry;

pub(super) fn key(id: &str) -> FeedPartitionKey {
    FeedPartitionKey { plan: "p".into(), feed: "f".into(), id: id.into() }
}

fn at(offset: i64) -> Offset {
    Offset::new(offset).unwrap()
}

/// Stores into `inner`, but each batch waits for a permit first; remembers the batches.
pub(super) struct Gated {
    pub(super) inner: MemoryOffsets,
    pub(super) gate: Semaphore,
    pub(super) batches: Mutex<Vec<Vec<(String, String)>>>,
}

impl Gated {
    pub(super) fn new(inner: MemoryOffsets, open: usize) -> Arc<Gated> {
        Arc::new(Gated { inner, gate: Semaphore::new(open), batches: Mutex::default() })
    }

    fn batches(&self) -> Vec<Vec<(String, String)>> {
        self.batches.lock().unwrap().clone()
    }
}

#[async_trait]
impl OffsetStorage for Gated {
    async fn persist_offsets(&self, batch: &[PersistOffset]) -> Vec<Result<(), Error>> {
        let names = batch.iter().map(|entry| (entry.key.id.to_string(), entry.offset.clone())).collect();
        self.batches.lock().unwrap().push(names);
        self.gate.acquire().await.unwrap().forget();
        self.inner.persist_offsets(batch).await
    }

    async fn find_latest_persisted_offset(&self, key: &FeedPartitionKey) -> Result<Option<String>, Error> {
        self.inner.find_latest_persisted_offset(key).await
    }

    fn current_offset(&self, key: &FeedPartitionKey) -> Option<String> {
        self.inner.current_offset(key)
    }

    async fn list(&self, plan: &str) -> Result<Vec<PersistOffset>, Error> {
        self.inner.list(plan).await
    }

    async fn delete(&self, key: &FeedPartitionKey) -> Result<(), Error> {
        self.inner.delete(key).await
    }
}

fn start(storage: &Arc<Gated>) -> Arc<Persister> {
    Arc::new(Persister::start(&Handle::current(), storage.clone(), Telemetry::new()))
}

const OWNER: crate::commit::Owner = 1;

async fn stored(storage: &Gated, id: &str) -> Option<String> {
    storage.inner.another_process().find_latest_persisted_offset(&key(id)).await.unwrap()
}

// Lets all tasks run until they wait for something.
async fn settle() {
    tokio::time::sleep(Duration::from_millis(1)).await;
}

#[tokio::test(start_paused = true)]
async fn while_a_round_is_under_way_the_next_one_gathers_and_the_last_value_wins() {
    let storage = Gated::new(MemoryOffsets::new(), 0);
    let persister = start(&storage);
    let persist = |id: &'static str, offset| {
        let persister = persister.clone();
        tokio::spawn(async move { persister.persist(&key(id), OWNER, at(offset)).await })
    };
    let first = persist("0", 1);
    settle().await;
    let mut waiting = Vec::new();
    for (id, offset) in [("0", 2), ("1", 7), ("0", 3), ("2", 8), ("0", 4)] {
        waiting.push(persist(id, offset));
        settle().await;
    }
    assert!(!first.is_finished());
    storage.gate.add_permits(1);
    assert_eq!(first.await.unwrap().unwrap(), at(1));
    storage.gate.add_permits(1);
    let mut answers = Vec::new();
    for task in waiting {
        answers.push(task.await.unwrap().unwrap().get());
    }
    assert_eq!(answers, [4, 7, 4, 8, 4], "whoever waited for an older offset learns of the newer one");
    let batch = |entries: &[(&str, &str)]| {
        entries.iter().map(|(id, offset)| ((*id).to_owned(), (*offset).to_owned())).collect::<Vec<_>>()
    };
    let expected = [batch(&[("0", "1")]), batch(&[("0", "4"), ("1", "7"), ("2", "8")])];
    assert_eq!(storage.batches(), expected);
    assert_eq!(stored(&storage, "0").await.as_deref(), Some("4"));
}

fn failing(times: usize, id: &'static str, fault: Fault) -> MemoryOffsets {
    let calls = AtomicUsize::new(0);
    MemoryOffsets::new().with_faults(Arc::new(move |operation| match operation {
        Operation::Persist(entry) if &*entry.key.id == id && calls.fetch_add(1, SeqCst) < times => {
            Some(fault)
        }
        _ => None,
    }))
}

#[tokio::test(start_paused = true)]
async fn a_failure_that_may_heal_is_repeated_and_shows_meanwhile() {
    let storage = Gated::new(failing(50, "0", Fault::Before), 1000);
    let telemetry = Telemetry::new();
    let persister = Persister::start(&Handle::current(), storage.clone(), telemetry.clone());
    let ill = || telemetry.health.reasons().iter().any(|reason| reason.subject == "offset storage");
    let key = key("0");
    let mut persist = std::pin::pin!(persister.persist(&key, OWNER, at(5)));
    assert!(timeout(Duration::from_secs(20), &mut persist).await.is_err());
    assert!(ill());
    assert_eq!(persist.await.unwrap(), at(5));
    settle().await;
    assert!(!ill());
    assert_eq!(stored(&storage, "0").await.as_deref(), Some("5"));
}

#[tokio::test(start_paused = true)]
async fn an_offset_whose_reply_was_lost_is_stored_once_and_is_no_conflict() {
    let storage = Gated::new(failing(1, "0", Fault::After), 1000);
    let persister = start(&storage);
    for offset in [5, 6] {
        assert_eq!(persister.persist(&key("0"), OWNER, at(offset)).await.unwrap(), at(offset));
    }
    assert_eq!(stored(&storage, "0").await.as_deref(), Some("6"));
}

#[tokio::test(start_paused = true)]
async fn a_conflict_reaches_whoever_waits_and_the_others_are_stored() {
    let storage = Gated::new(MemoryOffsets::new(), 1000);
    let other = storage.inner.another_process();
    assert!(storage.find_latest_persisted_offset(&key("1")).await.unwrap().is_none());
    let moved = [PersistOffset { key: key("1"), offset: "99".to_owned() }];
    other.persist_offsets(&moved).await.remove(0).unwrap();

    let persister = start(&storage);
    let keys = ["0", "1", "2"].map(key);
    let results =
        futures::future::join_all(keys.iter().map(|key| persister.persist(key, OWNER, at(5)))).await;
    assert_eq!(storage.batches().len(), 1);
    assert!(matches!(&results[..], [Ok(_), Err(Error::Conflict { .. }), Ok(_)]), "{results:?}");
    assert_eq!(stored(&storage, "0").await.as_deref(), Some("5"));
    assert_eq!(stored(&storage, "1").await.as_deref(), Some("99"));
    assert_eq!(stored(&storage, "2").await.as_deref(), Some("5"));
}

#[tokio::test(start_paused = true)]
async fn what_is_forgotten_is_not_stored_later() {
    // Queued behind a round that is under way.
    let storage = Gated::new(MemoryOffsets::new(), 0);
    let persister = start(&storage);
    let keys = [key("0"), key("1")];
    let first = persister.persist(&keys[0], OWNER, at(1));
    let behind = persister.persist(&keys[1], OWNER, at(2));
    let mut first = std::pin::pin!(first);
    assert!(timeout(Duration::from_millis(1), &mut first).await.is_err());
    let mut behind = std::pin::pin!(behind);
    assert!(timeout(Duration::from_millis(1), &mut behind).await.is_err());
    persister.forget(&keys[1], OWNER);
    storage.gate.add_permits(10);
    first.await.unwrap();
    // Whoever was forgotten hears no more.
    assert!(timeout(Duration::from_secs(60), behind).await.is_err());
    assert!(stored(&storage, "1").await.is_none());
}

#[tokio::test(start_paused = true)]
async fn what_is_forgotten_in_the_middle_of_a_failing_round_is_not_tried_again() {
    let storage = Gated::new(failing(1, "0", Fault::Before), 0);
    let persister = start(&storage);
    let key = key("0");
    let mut first = std::pin::pin!(persister.persist(&key, OWNER, at(1)));
    assert!(timeout(Duration::from_millis(1), &mut first).await.is_err());
    persister.forget(&key, OWNER);
    storage.gate.add_permits(10);
    assert!(timeout(Duration::from_secs(120), first).await.is_err());
    assert!(stored(&storage, "0").await.is_none());
    // The partition may come back, and is then persisted as usual.
    assert_eq!(persister.persist(&key, OWNER + 1, at(3)).await.unwrap(), at(3));
}

#[tokio::test(start_paused = true)]
async fn a_stop_stores_what_is_queued_and_does_not_wait_for_an_outage() {
    let storage = Gated::new(MemoryOffsets::new(), 10);
    let persister = start(&storage);
    let waiting = {
        let persister = persister.clone();
        tokio::spawn(async move { persister.persist(&key("0"), OWNER, at(1)).await })
    };
    tokio::task::yield_now().await;
    persister.stop().await;
    assert_eq!(waiting.await.unwrap().unwrap(), at(1));

    let storage = Gated::new(failing(usize::MAX, "0", Fault::Before), 10_000);
    let persister = start(&storage);
    let waiting = {
        let persister = persister.clone();
        tokio::spawn(async move { persister.persist(&key("0"), OWNER, at(1)).await })
    };
    // By now the pauses are as long as they get.
    tokio::time::sleep(Duration::from_secs(600)).await;
    let begun = Instant::now();
    persister.stop().await;
    assert!(begun.elapsed() < Duration::from_secs(1), "{:?}", begun.elapsed());
    assert!(waiting.await.unwrap().is_err());
    assert!(persister.persist(&key("0"), OWNER, at(2)).await.is_err());
}

#[tokio::test(start_paused = true)]
async fn an_owner_that_is_late_forgets_nothing_of_its_successor() {
    let storage = Gated::new(MemoryOffsets::new(), 0);
    let persister = start(&storage);
    let (key, other) = (key("0"), key("1"));
    // A round is under way, so that both entries of the partition are only queued.
    let mut busy = std::pin::pin!(persister.persist(&other, OWNER, at(1)));
    assert!(timeout(Duration::from_millis(1), &mut busy).await.is_err());
    let mut former = std::pin::pin!(persister.persist(&key, OWNER, at(5)));
    assert!(timeout(Duration::from_millis(1), &mut former).await.is_err());
    let mut successor = std::pin::pin!(persister.persist(&key, OWNER + 1, at(7)));
    assert!(timeout(Duration::from_millis(1), &mut successor).await.is_err());
    persister.forget(&key, OWNER);
    storage.gate.add_permits(10);
    assert_eq!(successor.await.unwrap(), at(7));
    assert_eq!(stored(&storage, "0").await.as_deref(), Some("7"));
}
