//! What one instance has seen of each entry, and what that says about an entry found later.
//!
//! Owns: the version seen last per entry, values whose write was never answered, the verdict on what is found.
//! Does not own: requests; who may work on an entry at the same time.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::model::FeedPartitionKey;

/// Unanswered values that are remembered per entry. Every new write is preceded by a read that settles the one before,
/// so that more than one is rare.
const DOUBTS: usize = 8;

/// How a store tells one state of an entry from the next.
pub(super) trait Version: Clone + PartialEq {
    /// Whether one write of ours leads from `before` to this version.
    fn follows(&self, before: Option<&Self>) -> bool;
}

/// Counts writes since the entry was created, as ZooKeeper does.
impl Version for i32 {
    fn follows(&self, before: Option<&i32>) -> bool {
        *self == before.map_or(0, |version| version.wrapping_add(1))
    }
}

/// A store without versions compares values alone.
impl Version for () {
    fn follows(&self, _: Option<&()>) -> bool {
        true
    }
}

/// An entry as a store holds it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Found<V> {
    pub(super) version: V,
    pub(super) offset: String,
}

/// What to do with a value, given what the store holds.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// The entry is as we know it: write.
    Write,
    /// The entry holds the value: an earlier write reached the store although its answer did not reach us.
    Written,
    /// Somebody else changed the entry to this.
    Conflict(Option<String>),
}

/// The condition of the next write.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Base<V> {
    /// Not known; the store must be read first.
    Unknown,
    /// There is no entry.
    Absent,
    /// The entry has this version.
    At(V),
}

#[derive(Debug)]
struct Known<V> {
    // The outer option: has it been seen at all? The inner one: was there an entry?
    seen: Option<Option<Found<V>>>,
    doubtful: Vec<String>,
}

/// The entries that one instance has worked on.
pub(super) struct Ledger<V> {
    entries: Mutex<HashMap<FeedPartitionKey, Known<V>>>,
}

impl<V: Version> Ledger<V> {
    pub(super) fn new() -> Ledger<V> {
        Ledger { entries: Mutex::new(HashMap::new()) }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<FeedPartitionKey, Known<V>>> {
        self.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn update<T>(&self, key: &FeedPartitionKey, change: impl FnOnce(&mut Known<V>) -> T) -> T {
        let mut entries = self.lock();
        if let Some(known) = entries.get_mut(key) {
            return change(known);
        }
        change(entries.entry(key.clone()).or_insert(Known { seen: None, doubtful: Vec::new() }))
    }

    /// The offset that was found or written last.
    pub(super) fn current(&self, key: &FeedPartitionKey) -> Option<String> {
        let entries = self.lock();
        let seen = entries.get(key)?.seen.as_ref()?;
        seen.as_ref().map(|found| found.offset.clone())
    }

    /// Takes note of what the store holds, whoever wrote it.
    pub(super) fn note(&self, key: &FeedPartitionKey, found: Option<Found<V>>) {
        self.update(key, |known| {
            known.seen = Some(found);
            known.doubtful.clear();
        });
    }

    /// Nothing is known of the entry any more.
    pub(super) fn forget(&self, key: &FeedPartitionKey) {
        self.lock().remove(key);
    }

    /// On what the next write is conditioned.
    pub(super) fn base(&self, key: &FeedPartitionKey) -> Base<V> {
        match self.lock().get(key) {
            Some(Known { seen: Some(seen), doubtful }) if doubtful.is_empty() => match seen {
                None => Base::Absent,
                Some(found) => Base::At(found.version.clone()),
            },
            _ => Base::Unknown,
        }
    }

    /// Compares what the store holds with what is known. Whatever is found becomes known, unless it is a conflict: that
    /// stays one until somebody calls [`Ledger::note`].
    pub(super) fn judge(&self, key: &FeedPartitionKey, found: Option<Found<V>>, ours: &str) -> Verdict {
        self.update(key, |known| {
            let Some(seen) = &known.seen else {
                known.seen = Some(found);
                return Verdict::Write;
            };
            if *seen == found {
                known.doubtful.clear();
                return Verdict::Write;
            }
            let Some(found) = found else {
                return Verdict::Conflict(None);
            };
            let before = seen.as_ref().map(|seen| &seen.version);
            if !known.doubtful.contains(&found.offset) || !found.version.follows(before) {
                return Verdict::Conflict(Some(found.offset));
            }
            let verdict = if found.offset == ours { Verdict::Written } else { Verdict::Write };
            known.seen = Some(Some(found));
            known.doubtful.clear();
            verdict
        })
    }

    /// A write of `offset` is about to be sent; until its answer is known it may have happened.
    pub(super) fn sending(&self, key: &FeedPartitionKey, offset: &str) {
        self.update(key, |known| {
            if known.doubtful.len() == DOUBTS {
                known.doubtful.remove(0);
            }
            known.doubtful.push(offset.to_owned());
        });
    }

    /// The write sent last did certainly not happen.
    pub(super) fn refused(&self, key: &FeedPartitionKey) {
        self.update(key, |known| known.doubtful.pop());
    }

    /// The write sent last did happen.
    pub(super) fn written(&self, key: &FeedPartitionKey, version: V, offset: &str) {
        self.note(key, Some(Found { version, offset: offset.to_owned() }));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key() -> FeedPartitionKey {
        FeedPartitionKey { plan: "p".into(), feed: "f".into(), id: "0".into() }
    }

    fn at(version: i32, offset: &str) -> Option<Found<i32>> {
        Some(Found { version, offset: offset.to_owned() })
    }

    // Knows `seen`, has sent `doubtful` without an answer, and now finds `found` while it wants to write "30".
    fn check(
        seen: Option<Option<Found<i32>>>,
        doubtful: &[&str],
        found: Option<Found<i32>>,
        expected: Verdict,
    ) {
        let ledger = Ledger::new();
        if let Some(seen) = seen.clone() {
            ledger.note(&key(), seen);
        }
        for offset in doubtful {
            ledger.sending(&key(), offset);
        }
        let context = format!("seen {seen:?}, doubtful {doubtful:?}, found {found:?}");
        assert_eq!(ledger.judge(&key(), found, "30"), expected, "{context}");
    }

    #[test]
    fn an_entry_that_nobody_touched_is_written() {
        check(None, &[], None, Verdict::Write);
        check(None, &[], at(7, "10"), Verdict::Write);
        check(Some(None), &[], None, Verdict::Write);
        check(Some(at(7, "10")), &[], at(7, "10"), Verdict::Write);
        check(Some(at(7, "10")), &["20"], at(7, "10"), Verdict::Write);
        check(Some(None), &["20"], None, Verdict::Write);
    }

    #[test]
    fn an_unanswered_write_of_ours_is_recognised() {
        check(Some(at(7, "10")), &["30"], at(8, "30"), Verdict::Written);
        check(Some(None), &["30"], at(0, "30"), Verdict::Written);
        check(Some(at(7, "10")), &["20"], at(8, "20"), Verdict::Write);
        check(Some(at(i32::MAX, "10")), &["30"], at(i32::MIN, "30"), Verdict::Written);
    }

    #[test]
    fn what_somebody_else_wrote_is_a_conflict() {
        let conflict = |offset: &str| Verdict::Conflict(Some(offset.to_owned()));
        check(Some(at(7, "10")), &[], at(8, "11"), conflict("11"));
        check(Some(at(7, "10")), &[], None, Verdict::Conflict(None));
        check(Some(None), &[], at(0, "11"), conflict("11"));
        // Our value under a version that one write of ours cannot have made.
        check(Some(at(7, "10")), &["30"], at(9, "30"), conflict("30"));
        // Our value, but we never sent it.
        check(Some(at(7, "10")), &[], at(8, "30"), conflict("30"));
        // The entry was removed and made again.
        check(Some(at(0, "10")), &[], at(0, "11"), conflict("11"));
        check(Some(at(7, "10")), &["30"], None, Verdict::Conflict(None));
    }

    #[test]
    fn a_conflict_lasts_until_the_entry_is_noted_again() {
        let ledger = Ledger::new();
        ledger.note(&key(), at(1, "10"));
        for _ in 0..2 {
            assert_eq!(ledger.judge(&key(), at(2, "11"), "20"), Verdict::Conflict(Some("11".into())));
        }
        assert_eq!(ledger.base(&key()), Base::At(1));
        assert_eq!(ledger.current(&key()).as_deref(), Some("10"));
        ledger.note(&key(), at(2, "11"));
        assert_eq!(ledger.judge(&key(), at(2, "11"), "20"), Verdict::Write);
    }

    #[test]
    fn a_write_without_an_answer_asks_for_a_read() {
        let ledger = Ledger::new();
        assert_eq!(ledger.base(&key()), Base::Unknown);
        ledger.note(&key(), None);
        assert_eq!(ledger.base(&key()), Base::Absent);
        ledger.sending(&key(), "10");
        assert_eq!(ledger.base(&key()), Base::Unknown);
        ledger.refused(&key());
        assert_eq!(ledger.base(&key()), Base::Absent);
        ledger.sending(&key(), "10");
        ledger.written(&key(), 0, "10");
        assert_eq!(ledger.base(&key()), Base::At(0));
    }
}
