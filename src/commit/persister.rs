//! Persists offsets in batches.
//!
//! Owns: the newest offset of each partition that is not stored yet; repeating rounds until they are.
//! Does not own: which offset may be persisted: callers give one only when everything before it is committed.
//! Crash: what is not stored yet is lost, and a restart begins at an earlier offset.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::sync::{Notify, oneshot};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

use crate::error::chain;
use crate::model::{FeedPartitionKey, Offset};
use crate::offset::{Error, PersistOffset, SharedOffsets};
use crate::retry::Backoff;
use crate::telemetry::Telemetry;

type Answer = oneshot::Sender<Result<Offset, Error>>;

/// Who gives offsets of a partition: its committer, by number. The same partition may come back to this process under
/// another committer before the former one has been forgotten.
pub type Owner = u64;

struct Entry {
    owner: Owner,
    offset: Offset,
    waiting: Vec<Answer>,
}

#[derive(Default)]
struct Queue {
    entries: BTreeMap<FeedPartitionKey, Entry>,
    // Owners forgotten while a round with an entry of theirs may be under way.
    forgotten: BTreeSet<Owner>,
}

struct Shared {
    queue: Mutex<Queue>,
    wake: Notify,
    stop: CancellationToken,
}

/// The one task of a process that writes to the offset storage.
///
/// The last value of a partition wins, so that a slow store sees fewer writes and never a backlog.
pub struct Persister {
    shared: Arc<Shared>,
    task: Mutex<Option<JoinHandle<()>>>,
}

impl Persister {
    /// Starts the task on `runtime`.
    pub fn start(runtime: &Handle, storage: SharedOffsets, telemetry: Telemetry) -> Persister {
        let shared =
            Arc::new(Shared { queue: Mutex::default(), wake: Notify::new(), stop: CancellationToken::new() });
        let task = runtime.spawn(run(shared.clone(), storage, telemetry));
        Persister { shared, task: Mutex::new(Some(task)) }
    }

    /// Persists `offset` for `owner`, and tells when it, or a later one of the same partition, is stored. Transient failures are
    /// repeated. Dropping the future does not take the offset back.
    ///
    /// # Errors
    /// The storage's, when it is not transient: above all [`Error::Conflict`].
    pub async fn persist(
        &self,
        key: &FeedPartitionKey,
        owner: Owner,
        offset: Offset,
    ) -> Result<Offset, Error> {
        let (answer, answered) = oneshot::channel();
        {
            let mut queue = lock(&self.shared.queue);
            if self.shared.stop.is_cancelled() {
                return Err(stopping());
            }
            let fresh = || Entry { owner, offset, waiting: Vec::new() };
            let entry = queue.entries.entry(key.clone()).or_insert_with(fresh);
            if entry.owner != owner {
                *entry = fresh();
            }
            entry.offset = offset;
            entry.waiting.push(answer);
        }
        self.shared.wake.notify_one();
        match answered.await {
            Ok(result) => result,
            Err(_) if self.shared.stop.is_cancelled() => Err(stopping()),
            // Forgotten: whoever waits is about to be dropped too.
            Err(_) => std::future::pending().await,
        }
    }

    /// Forgets what is not stored yet of `owner`: the partition belongs to somebody else now.
    pub fn forget(&self, key: &FeedPartitionKey, owner: Owner) {
        let mut queue = lock(&self.shared.queue);
        queue.forgotten.insert(owner);
        if queue.entries.get(key).is_some_and(|entry| entry.owner == owner) {
            queue.entries.remove(key);
        }
    }

    /// Ends the task. What is queued is tried once more; whoever waits for what fails then gets an error.
    pub async fn stop(&self) {
        self.shared.stop.cancel();
        let task = self.task.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(task) = task {
            let _ = task.await;
        }
        // With their senders, so that nobody waits for an answer that cannot come.
        lock(&self.shared.queue).entries.clear();
    }
}

impl Drop for Persister {
    fn drop(&mut self) {
        if let Some(task) = self.task.lock().unwrap_or_else(PoisonError::into_inner).take() {
            task.abort();
        }
    }
}

fn lock(queue: &Mutex<Queue>) -> std::sync::MutexGuard<'_, Queue> {
    queue.lock().unwrap_or_else(PoisonError::into_inner)
}

fn stopping() -> Error {
    Error::Unavailable { store: "offset storage".into(), source: "the process is stopping".into() }
}

async fn run(shared: Arc<Shared>, storage: SharedOffsets, telemetry: Telemetry) {
    let mut backoff = Backoff::network();
    loop {
        let stopping = shared.stop.is_cancelled();
        let round = {
            let mut queue = lock(&shared.queue);
            queue.forgotten.clear();
            std::mem::take(&mut queue.entries)
        };
        if round.is_empty() {
            if stopping {
                return;
            }
            tokio::select! {
                () = shared.wake.notified() => {}
                () = shared.stop.cancelled() => {}
            }
            continue;
        }
        match persist_round(&shared, storage.as_ref(), round, &telemetry).await {
            None => {
                if backoff.attempt() > 0 {
                    backoff = Backoff::network();
                    let outage = telemetry.health.clear("offset storage");
                    info!(?outage, "offsets are persisted again");
                }
            }
            Some(failure) => {
                let wait = backoff.next_wait(failure.retry_after);
                telemetry.metrics.failure("persist", "unavailable");
                warn!(
                    attempts = backoff.attempt(),
                    ?wait,
                    error = failure.reason,
                    "offsets not persisted, will retry"
                );
                telemetry
                    .health
                    .raise("offset storage", format!("offsets are not persisted: {}", failure.reason));
                if stopping {
                    return;
                }
                tokio::select! {
                    () = tokio::time::sleep(wait) => {}
                    () = shared.stop.cancelled() => {}
                }
            }
        }
    }
}

struct Failure {
    reason: String,
    retry_after: Option<Duration>,
}

// Stores a round; what failed for now goes back to the queue unless a newer value is there already.
async fn persist_round(
    shared: &Shared,
    storage: &dyn crate::offset::OffsetStorage,
    round: BTreeMap<FeedPartitionKey, Entry>,
    telemetry: &Telemetry,
) -> Option<Failure> {
    let batch: Vec<PersistOffset> = round
        .iter()
        .map(|(key, entry)| PersistOffset { key: key.clone(), offset: entry.offset.to_string() })
        .collect();
    let results = storage.persist_offsets(&batch).await;
    debug_assert_eq!(results.len(), batch.len());
    let mut failure = None;
    for ((key, entry), result) in round.into_iter().zip(results) {
        match result {
            Ok(()) => {
                telemetry.metrics.feed(&key.feed).persisted.inc();
                for waiting in entry.waiting {
                    let _ = waiting.send(Ok(entry.offset));
                }
            }
            Err(error) if error.class().is_transient() => {
                failure.get_or_insert(Failure { reason: chain(&error), retry_after: None });
                put_back(shared, key, entry);
            }
            Err(error) => {
                let mut waiting = entry.waiting.into_iter();
                // Errors are not Clone; whoever waits for the newest value gets it, the others learn that it ended.
                if let Some(last) = waiting.next_back() {
                    let _ = last.send(Err(error));
                }
            }
        }
    }
    failure
}

fn put_back(shared: &Shared, key: FeedPartitionKey, entry: Entry) {
    let mut queue = lock(&shared.queue);
    if queue.forgotten.contains(&entry.owner) {
        return;
    }
    match queue.entries.entry(key) {
        std::collections::btree_map::Entry::Vacant(place) => {
            place.insert(entry);
        }
        std::collections::btree_map::Entry::Occupied(mut newer) => {
            let newer = newer.get_mut();
            if newer.owner != entry.owner {
                return;
            }
            let mut waiting = entry.waiting;
            waiting.append(&mut newer.waiting);
            newer.waiting = waiting;
        }
    }
}
