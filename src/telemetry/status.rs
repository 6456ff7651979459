//! How far each assigned partition is, for `/status`.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use serde::Serialize;

/// What a partition is doing.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case", tag = "state", content = "reason")]
pub enum PartitionState {
    /// Its position is being looked up.
    Resolving,
    /// Records are taken.
    Reading,
    /// It waits, for the reason given.
    Waiting(String),
    /// It stopped, for the reason given, until the process is restarted or the partition is assigned anew.
    Failed(String),
    /// It is being given up.
    Leaving,
}

/// A partition as `/status` shows it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct PartitionStatus {
    /// The feed's name.
    pub feed: String,
    /// The topic.
    pub topic: String,
    /// The partition's number.
    pub partition: i32,
    /// Where its blobs go.
    pub target: String,
    /// What it is doing.
    #[serde(flatten)]
    pub state: PartitionState,
    /// The next offset to be read.
    pub position: Option<i64>,
    /// The next offset behind all committed blobs.
    pub committed: Option<i64>,
    /// The offset that a restart begins at.
    pub persisted: Option<i64>,
    /// Records between the committed offset and the end of the log as the client last heard of it.
    pub lag: Option<i64>,
    /// Records in blobs that are not committed yet.
    pub uncommitted_records: u64,
    /// Blobs that take records now.
    pub open_blobs: usize,
    /// Age in seconds of the oldest record that is not committed.
    pub oldest_uncommitted_seconds: Option<u64>,
}

/// Sums over all partitions of the process.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Totals {
    /// All partitions.
    pub assigned: usize,
    /// Those that stopped.
    pub failed: usize,
    /// Those that wait for something.
    pub waiting: usize,
    /// Lag by feed.
    pub lag: BTreeMap<String, i64>,
}

/// The status of all partitions of the process. Cloning shares it.
#[derive(Clone, Default)]
pub struct StatusBoard {
    partitions: Arc<Mutex<BTreeMap<String, PartitionStatus>>>,
}

impl StatusBoard {
    /// Shows `status` under `key`, a source name.
    pub fn set(&self, key: &str, status: PartitionStatus) {
        self.lock().insert(key.to_owned(), status);
    }

    /// Shows a partition no more.
    pub fn remove(&self, key: &str) {
        self.lock().remove(key);
    }

    /// Sums over all partitions.
    pub fn totals(&self) -> Totals {
        let mut totals = Totals::default();
        for status in self.lock().values() {
            totals.assigned += 1;
            match status.state {
                PartitionState::Failed(_) => totals.failed += 1,
                PartitionState::Resolving | PartitionState::Waiting(_) => totals.waiting += 1,
                PartitionState::Reading | PartitionState::Leaving => {}
            }
            match totals.lag.get_mut(&status.feed) {
                Some(lag) => *lag += status.lag.unwrap_or(0),
                None => {
                    totals.lag.insert(status.feed.clone(), status.lag.unwrap_or(0));
                }
            }
        }
        totals
    }

    /// All partitions, by source name.
    pub fn snapshot(&self) -> BTreeMap<String, PartitionStatus> {
        self.lock().clone()
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, BTreeMap<String, PartitionStatus>> {
        self.partitions.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
