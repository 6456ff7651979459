//! What every offset storage promises, as checks that each of them passes.
//!
//! Owns: one check per promise of [`OffsetStorage`](super::OffsetStorage).
//! Does not own: what only one storage does, such as nodes, sessions, locks.

use std::panic::AssertUnwindSafe;

use futures::FutureExt;
use futures::future::{BoxFuture, join_all};

use super::{Error, PersistOffset, SharedOffsets};
use crate::model::FeedPartitionKey;

type Check = for<'a> fn(&'a Subject<'a>) -> BoxFuture<'a, ()>;

/// A storage under test, and a plan of its own in it.
struct Subject<'a> {
    factory: &'a (dyn Fn() -> SharedOffsets + Sync),
    plan: String,
}

/// Runs every check. Each call of `factory` gives an instance as another process would open it, over the same entries;
/// the storage holds no plan whose name begins with `plan`.
///
/// # Panics
/// When a promise is broken; the message names all that are.
pub async fn run(factory: impl Fn() -> SharedOffsets + Sync, plan: &str) {
    let mut broken = Vec::new();
    for (number, (promise, check)) in CHECKS.iter().enumerate() {
        let subject = Subject { factory: &factory, plan: format!("{plan}{number}") };
        if let Err(panic) = AssertUnwindSafe(check(&subject)).catch_unwind().await {
            let text = panic
                .downcast_ref::<String>()
                .map(String::as_str)
                .or_else(|| panic.downcast_ref::<&str>().copied())
                .unwrap_or("a panic without words");
            broken.push(format!("- {promise}: {text}"));
        }
    }
    assert!(broken.is_empty(), "broken promises:\n{}", broken.join("\n"));
}

const CHECKS: &[(&str, Check)] = &[
    ("absent entries are none", |s| absent_is_none(s).boxed()),
    ("offsets come back unchanged, whatever the names", |s| odd_names_round_trip(s).boxed()),
    ("the last known offset is told without asking", |s| current_offset_follows(s).boxed()),
    ("a conflict keeps no other entry back", |s| conflict_in_a_batch(s).boxed()),
    ("what another instance wrote is not overwritten", |s| conflict_until_found(s).boxed()),
    ("an entry that appeared or went is a conflict", |s| appeared_or_gone(s).boxed()),
    ("an entry never seen is read before it is written", |s| blind_write(s).boxed()),
    ("a list is sorted, complete and of one plan", |s| list_of_one_plan(s).boxed()),
    ("an entry can be removed and made again", |s| delete_and_again(s).boxed()),
    ("a batch of 1,200 entries is stored", |s| large_batch(s).boxed()),
    ("the same offset twice, and a lower one, are stored", |s| same_and_lower(s).boxed()),
    ("calls of one instance do not disturb each other", |s| concurrent_calls(s).boxed()),
    ("an offset that is too long is refused alone", |s| too_long(s).boxed()),
];

impl Subject<'_> {
    fn open(&self) -> SharedOffsets {
        (self.factory)()
    }

    fn key(&self, id: &str) -> FeedPartitionKey {
        FeedPartitionKey { plan: self.plan.as_str().into(), feed: "feed".into(), id: id.into() }
    }

    fn entry(&self, id: &str, offset: &str) -> PersistOffset {
        PersistOffset { key: self.key(id), offset: offset.to_owned() }
    }

    async fn persist(&self, storage: &SharedOffsets, id: &str, offset: &str) -> Result<(), Error> {
        let mut results = storage.persist_offsets(&[self.entry(id, offset)]).await;
        assert_eq!(results.len(), 1, "one result per entry");
        results.remove(0)
    }

    async fn find(&self, storage: &SharedOffsets, id: &str) -> Option<String> {
        storage.find_latest_persisted_offset(&self.key(id)).await.expect("the storage answers")
    }

    async fn list(&self) -> Vec<PersistOffset> {
        self.open().list(&self.plan).await.expect("the storage answers")
    }
}

#[track_caller]
fn assert_conflict(result: Result<(), Error>, stored: Option<&str>, ours: &str) {
    match result {
        Err(Error::Conflict { stored: found, ours: sent, .. }) => {
            assert_eq!((found.as_deref(), sent.as_str()), (stored, ours));
        }
        other => panic!("a conflict with {stored:?} was due, not {other:?}"),
    }
}

async fn absent_is_none(s: &Subject<'_>) {
    let storage = s.open();
    assert_eq!(s.find(&storage, "0").await, None);
    assert_eq!(storage.current_offset(&s.key("0")), None);
    assert_eq!(s.list().await, []);
    storage.delete(&s.key("0")).await.expect("absent is no error");
}

async fn odd_names_round_trip(s: &Subject<'_>) {
    let long = format!("{}.0", "x".repeat(249));
    let parts = [
        ("", "feed", "0"),
        ("-a-b", "c-d", "a.b_c-d.17"),
        ("-a", "b-c-d", "a.b_c-d.17"),
        ("%2Da", "100%", "0"),
        ("/x/../y", "./-", "..0"),
        ("ü", "日本語 😀", "0"),
        ("\u{1}", "\u{85}\u{e000}", "0"),
        ("", "feed", &long),
        ("", "", "1"),
        ("", "a\"b\\c\n", "0"),
    ];
    let entry = |(number, (plan, feed, id)): (usize, &(&str, &str, &str))| PersistOffset {
        key: FeedPartitionKey {
            plan: format!("{}{plan}", s.plan).into(),
            feed: (*feed).into(),
            id: (*id).into(),
        },
        offset: format!("offset {number} \u{e9}-/%"),
    };
    let batch: Vec<_> = parts.iter().enumerate().map(entry).collect();
    for (entry, result) in batch.iter().zip(s.open().persist_offsets(&batch).await) {
        assert!(result.is_ok(), "{entry:?}: {result:?}");
    }
    let storage = s.open();
    for entry in &batch {
        let found = storage.find_latest_persisted_offset(&entry.key).await.expect("the storage answers");
        assert_eq!(found.as_ref(), Some(&entry.offset), "{entry:?}");
        let listed = storage.list(&entry.key.plan).await.expect("the storage answers");
        assert!(listed.contains(entry), "{entry:?} is not in {listed:?}");
    }
}

async fn current_offset_follows(s: &Subject<'_>) {
    let (storage, other) = (s.open(), s.open());
    assert!(s.persist(&storage, "0", "1").await.is_ok());
    assert_eq!(storage.current_offset(&s.key("0")).as_deref(), Some("1"));
    assert_eq!(other.current_offset(&s.key("0")), None, "another instance has not asked yet");
    assert_eq!(s.find(&other, "0").await.as_deref(), Some("1"));
    assert_eq!(other.current_offset(&s.key("0")).as_deref(), Some("1"));
    assert!(s.persist(&other, "0", "2").await.is_ok());
    assert_eq!(storage.current_offset(&s.key("0")).as_deref(), Some("1"), "nobody has asked");
}

async fn conflict_in_a_batch(s: &Subject<'_>) {
    let (storage, other) = (s.open(), s.open());
    let batch = |offset: &str| ["0", "1", "2"].map(|id| s.entry(id, offset));
    assert!(storage.persist_offsets(&batch("1")).await.iter().all(Result::is_ok));
    assert_eq!(s.find(&other, "1").await.as_deref(), Some("1"));
    assert!(s.persist(&other, "1", "50").await.is_ok());
    let [first, second, third] =
        <[_; 3]>::try_from(storage.persist_offsets(&batch("2")).await).expect("three results");
    assert!(first.is_ok() && third.is_ok(), "{first:?} {third:?}");
    assert_conflict(second, Some("50"), "2");
    assert_eq!(s.list().await, [s.entry("0", "2"), s.entry("1", "50"), s.entry("2", "2")]);
}

async fn conflict_until_found(s: &Subject<'_>) {
    let (storage, other) = (s.open(), s.open());
    assert!(s.persist(&storage, "0", "1").await.is_ok());
    assert!(s.persist(&other, "0", "2").await.is_ok(), "it has read before it wrote");
    for _ in 0..2 {
        assert_conflict(s.persist(&storage, "0", "3").await, Some("2"), "3");
    }
    assert_conflict(s.persist(&storage, "0", "2").await, Some("2"), "2");
    assert_eq!(s.find(&storage, "0").await.as_deref(), Some("2"));
    assert!(s.persist(&storage, "0", "3").await.is_ok());
    assert_conflict(s.persist(&other, "0", "4").await, Some("3"), "4");
}

async fn appeared_or_gone(s: &Subject<'_>) {
    let (storage, other) = (s.open(), s.open());
    assert_eq!(s.find(&storage, "0").await, None);
    assert!(s.persist(&other, "0", "7").await.is_ok());
    assert_conflict(s.persist(&storage, "0", "1").await, Some("7"), "1");
    other.delete(&s.key("0")).await.expect("the storage answers");
    assert!(s.persist(&storage, "0", "1").await.is_ok(), "absent, as it was seen");
    other.delete(&s.key("0")).await.expect("the storage answers");
    assert_conflict(s.persist(&storage, "0", "2").await, None, "2");
    assert_eq!(s.find(&storage, "0").await, None);
    assert!(s.persist(&storage, "0", "2").await.is_ok());
}

async fn blind_write(s: &Subject<'_>) {
    assert!(s.persist(&s.open(), "0", "1").await.is_ok(), "there was nothing");
    assert!(s.persist(&s.open(), "0", "2").await.is_ok(), "there was something, and it was read");
    assert_eq!(s.list().await, [s.entry("0", "2")]);
}

async fn list_of_one_plan(s: &Subject<'_>) {
    let key = |plan: &str, feed: &str, id: &str| {
        let plan = format!("{}{plan}", s.plan);
        FeedPartitionKey { plan: plan.into(), feed: feed.into(), id: id.into() }
    };
    let mut ours = [
        key("", "b", "10"),
        key("", "b", "2"),
        key("", "a-b", "0"),
        key("", "a", "b-0"),
        key("", "B", "x.y-z.0"),
    ];
    let others = [key("-a", "b", "0"), key("%2Da", "b", "0"), key("x", "b", "0")];
    let storage = s.open();
    let entry = |key: &FeedPartitionKey| PersistOffset { key: key.clone(), offset: key.to_string() };
    let batch: Vec<_> = ours.iter().chain(&others).map(entry).collect();
    assert!(storage.persist_offsets(&batch).await.iter().all(Result::is_ok));
    ours.sort();
    assert_eq!(s.list().await, ours.iter().map(entry).collect::<Vec<_>>());
    for other in &others {
        assert_eq!(storage.list(&other.plan).await.expect("the storage answers"), [entry(other)]);
    }
}

async fn delete_and_again(s: &Subject<'_>) {
    let storage = s.open();
    assert!(s.persist(&storage, "0", "1").await.is_ok());
    assert!(s.persist(&storage, "1", "1").await.is_ok());
    for _ in 0..2 {
        storage.delete(&s.key("0")).await.expect("present or absent");
        assert_eq!(storage.current_offset(&s.key("0")), None);
    }
    assert_eq!(s.list().await, [s.entry("1", "1")]);
    assert!(s.persist(&storage, "0", "2").await.is_ok());
    assert_eq!(s.list().await, [s.entry("0", "2"), s.entry("1", "1")]);
}

async fn large_batch(s: &Subject<'_>) {
    let storage = s.open();
    for round in ["1", "2"] {
        let mut batch: Vec<_> =
            (0..1200).map(|id| s.entry(&format!("topic-{id}.0"), &format!("{round}{id}"))).collect();
        let results = storage.persist_offsets(&batch).await;
        assert_eq!(results.len(), 1200);
        assert!(results.iter().all(Result::is_ok), "{:?}", results.iter().find(|result| result.is_err()));
        batch.sort_by(|a, b| a.key.cmp(&b.key));
        assert_eq!(s.list().await, batch);
    }
    assert!(storage.persist_offsets(&[]).await.is_empty());
}

async fn same_and_lower(s: &Subject<'_>) {
    let storage = s.open();
    for offset in ["10", "10", "5", "", "10"] {
        assert!(s.persist(&storage, "0", offset).await.is_ok(), "{offset:?}");
        assert_eq!(s.list().await, [s.entry("0", offset)]);
    }
}

async fn concurrent_calls(s: &Subject<'_>) {
    let storage = s.open();
    let ids: Vec<_> = (0..8).map(|id| id.to_string()).collect();
    let write = |offset: usize| {
        // Overlapping batches, in different orders.
        let mut batch: Vec<_> = ids.iter().map(|id| s.entry(id, &offset.to_string())).collect();
        batch.rotate_left(offset % 8);
        batch.truncate(5);
        let storage = &storage;
        async move {
            for result in storage.persist_offsets(&batch).await {
                assert!(result.is_ok(), "{result:?}");
            }
        }
    };
    let read = |id: &String| {
        let (key, storage) = (s.key(id), &storage);
        async move {
            storage.find_latest_persisted_offset(&key).await.expect("the storage answers");
        }
    };
    tokio::join!(join_all((0..40).map(write)), join_all(ids.iter().map(read)));
    for entry in s.list().await {
        assert_eq!(storage.current_offset(&entry.key), Some(entry.offset));
    }
}

async fn too_long(s: &Subject<'_>) {
    let storage = s.open();
    let longest = "9".repeat(super::MAX_OFFSET_BYTES);
    let batch = [s.entry("0", &longest), s.entry("1", &format!("{longest}9")), s.entry("2", "7")];
    let results = storage.persist_offsets(&batch).await;
    assert!(matches!(results[..], [Ok(()), Err(Error::Configuration { .. }), Ok(())]), "{results:?}");
    assert_eq!(s.list().await, [batch[0].clone(), batch[2].clone()]);
}
