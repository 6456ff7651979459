//! An offset storage in this process's memory, for tests: it loses everything with the process.
//!
//! Owns: entries with versions like ZooKeeper's, and faults on demand.
//! Does not own: anything that outlives the process.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use async_trait::async_trait;

use super::ledger::{Found, Ledger, Verdict};
use super::{Error, OffsetStorage, PersistOffset, check_offset};
use crate::model::FeedPartitionKey;

/// What a call is about to do. A batch asks once for each of its entries.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[expect(missing_docs, reason = "each is named like the call")]
pub enum Operation<'a> {
    Persist(&'a PersistOffset),
    Find(&'a FeedPartitionKey),
    List(&'a str),
    Delete(&'a FeedPartitionKey),
}

/// What goes wrong with a call, or with an entry of a batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// Unavailable, and nothing happened.
    Before,
    /// Unavailable, although the store has acted: the reply is lost.
    After,
    /// The request takes so long to arrive; tokio's time, so tests may pause it. A caller that gives up meanwhile has
    /// prevented it.
    Stall(Duration),
}

/// Decides what goes wrong with each operation.
pub type Faults = Arc<dyn Fn(Operation<'_>) -> Option<Fault> + Send + Sync>;

type Entries = BTreeMap<FeedPartitionKey, Found<i32>>;

/// Offsets in memory, as one process sees them.
pub struct MemoryOffsets {
    entries: Arc<Mutex<Entries>>,
    ledger: Ledger<i32>,
    faults: Option<Faults>,
}

impl MemoryOffsets {
    /// An empty storage.
    pub fn new() -> MemoryOffsets {
        MemoryOffsets { entries: Arc::default(), ledger: Ledger::new(), faults: None }
    }

    /// The same entries as another process sees them: it has read and written nothing yet, and meets no faults.
    pub fn another_process(&self) -> MemoryOffsets {
        MemoryOffsets { entries: self.entries.clone(), ledger: Ledger::new(), faults: None }
    }

    /// Lets calls of this instance fail as `faults` says.
    pub fn with_faults(mut self, faults: Faults) -> MemoryOffsets {
        self.faults = Some(faults);
        self
    }

    fn lock(&self) -> MutexGuard<'_, Entries> {
        self.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }

    // Whether the reply is lost, once the operation has been let through.
    async fn meet(&self, operation: Operation<'_>) -> Result<bool, Error> {
        match self.faults.as_ref().and_then(|faults| faults(operation)) {
            None => Ok(false),
            Some(Fault::Before) => Err(unavailable("the request did not arrive")),
            Some(Fault::After) => Ok(true),
            Some(Fault::Stall(time)) => {
                tokio::time::sleep(time).await;
                Ok(false)
            }
        }
    }

    async fn persist(&self, entry: &PersistOffset) -> Result<(), Error> {
        check_offset(entry)?;
        let reply_is_lost = self.meet(Operation::Persist(entry)).await?;
        let PersistOffset { key, offset } = entry;
        let mut entries = self.lock();
        let found = entries.get(key).cloned();
        let version = found.as_ref().map_or(0, |found| found.version.wrapping_add(1));
        match self.ledger.judge(key, found, offset) {
            Verdict::Written => return Ok(()),
            Verdict::Conflict(stored) => {
                return Err(Error::Conflict { key: key.clone(), stored, ours: offset.clone() });
            }
            Verdict::Write => {}
        }
        self.ledger.sending(key, offset);
        entries.insert(key.clone(), Found { version, offset: offset.clone() });
        if reply_is_lost {
            return Err(unavailable("the reply was lost"));
        }
        self.ledger.written(key, version, offset);
        Ok(())
    }
}

impl Default for MemoryOffsets {
    fn default() -> MemoryOffsets {
        MemoryOffsets::new()
    }
}

fn unavailable(reason: &'static str) -> Error {
    Error::Unavailable { store: "memory".to_owned(), source: reason.into() }
}

#[async_trait]
impl OffsetStorage for MemoryOffsets {
    async fn persist_offsets(&self, batch: &[PersistOffset]) -> Vec<Result<(), Error>> {
        let mut results = Vec::with_capacity(batch.len());
        for entry in batch {
            results.push(self.persist(entry).await);
        }
        results
    }

    async fn find_latest_persisted_offset(&self, key: &FeedPartitionKey) -> Result<Option<String>, Error> {
        if self.meet(Operation::Find(key)).await? {
            return Err(unavailable("the reply was lost"));
        }
        let entries = self.lock();
        let found = entries.get(key).cloned();
        let offset = found.as_ref().map(|found| found.offset.clone());
        self.ledger.note(key, found);
        Ok(offset)
    }

    fn current_offset(&self, key: &FeedPartitionKey) -> Option<String> {
        self.ledger.current(key)
    }

    async fn list(&self, plan: &str) -> Result<Vec<PersistOffset>, Error> {
        if self.meet(Operation::List(plan)).await? {
            return Err(unavailable("the reply was lost"));
        }
        let entries = self.lock();
        let of_plan = entries.iter().filter(|(key, _)| &*key.plan == plan);
        Ok(of_plan
            .map(|(key, found)| PersistOffset { key: key.clone(), offset: found.offset.clone() })
            .collect())
    }

    async fn delete(&self, key: &FeedPartitionKey) -> Result<(), Error> {
        let reply_is_lost = self.meet(Operation::Delete(key)).await?;
        let mut entries = self.lock();
        entries.remove(key);
        if reply_is_lost {
            self.ledger.forget(key);
            return Err(unavailable("the reply was lost"));
        }
        self.ledger.note(key, None);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(id: &str, offset: &str) -> PersistOffset {
        let key = FeedPartitionKey { plan: "p".into(), feed: "f".into(), id: id.into() };
        PersistOffset { key, offset: offset.into() }
    }

    fn failing(fault: Fault, at: &'static str) -> MemoryOffsets {
        MemoryOffsets::new().with_faults(Arc::new(move |operation| match operation {
            Operation::Persist(entry) if entry.offset == at => Some(fault),
            _ => None,
        }))
    }

    #[tokio::test]
    async fn a_write_that_did_not_arrive_left_nothing() {
        let storage = failing(Fault::Before, "1");
        let results = storage.persist_offsets(&[entry("0", "1"), entry("1", "2")]).await;
        assert!(matches!(results[..], [Err(Error::Unavailable { .. }), Ok(())]), "{results:?}");
        assert_eq!(storage.another_process().list("p").await.unwrap(), [entry("1", "2")]);
    }

    #[tokio::test]
    async fn a_write_whose_reply_was_lost_is_not_a_conflict_later() {
        let storage = failing(Fault::After, "1");
        let results = storage.persist_offsets(&[entry("0", "1")]).await;
        assert!(matches!(results[..], [Err(Error::Unavailable { .. })]), "{results:?}");
        assert_eq!(storage.another_process().list("p").await.unwrap(), [entry("0", "1")]);
        for offset in ["2", "3"] {
            let results = storage.persist_offsets(&[entry("0", offset)]).await;
            assert!(matches!(results[..], [Ok(())]), "{results:?}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_caller_that_gives_up_on_a_stalled_write_has_prevented_it() {
        let storage = failing(Fault::Stall(Duration::from_secs(60)), "1");
        let batch = [entry("0", "1")];
        let write = storage.persist_offsets(&batch);
        assert!(tokio::time::timeout(Duration::from_secs(59), write).await.is_err());
        assert!(storage.list("p").await.unwrap().is_empty());
        let write = storage.persist_offsets(&batch);
        assert!(tokio::time::timeout(Duration::from_secs(61), write).await.is_ok());
        assert_eq!(storage.list("p").await.unwrap(), batch);
    }
}
