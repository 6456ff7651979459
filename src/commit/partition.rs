//! The commits of one partition, in the order of their offsets.
//!
//! Owns: the queue of sealed commits, their order.
//! Does not own: sealing; what happens after a failure.
//! Crash: see [`crate::commit`].

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use futures::future::{BoxFuture, try_join_all};
use tokio::runtime::Handle;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tracing::{debug, info};

use super::persister::Owner;
use super::{CommitId, Error, Persister, commit_blob};
use crate::error::Class;
use crate::model::{FeedPartitionKey, Offset, OffsetRange, Slot};
use crate::producer::PendingBlob;
use crate::store::SharedStore;
use crate::telemetry::{FeedMetrics, Telemetry};

/// One commit: a range of offsets and the blobs that hold its records. A range that holds none, such as one of holes
/// only, has no blobs and moves the offset all the same.
pub struct Commit {
    /// What is covered.
    pub range: OffsetRange,
    /// The blobs, sealed, perhaps still being staged.
    pub blobs: Vec<PendingBlob>,
}

/// What became of the commits of a partition.
#[derive(Debug)]
pub enum CommitEvent {
    /// All blobs of the range are committed.
    Committed {
        /// Whose.
        slot: Slot,
        /// Of which committer of that slot.
        committer: Owner,
        /// What is covered.
        range: OffsetRange,
    },
    /// A restart begins at `next` now.
    Persisted {
        /// Whose.
        slot: Slot,
        /// Of which committer of that slot.
        committer: Owner,
        /// The offset that was stored.
        next: Offset,
    },
    /// A commit failed for good; nothing after it is committed. The last event of its slot.
    Failed {
        /// Whose.
        slot: Slot,
        /// Of which committer of that slot.
        committer: Owner,
        /// Why.
        error: Error,
    },
}

/// Takes the commits of one partition. Dropping it abandons what is not done.
pub struct PartitionCommitter {
    number: Owner,
    key: FeedPartitionKey,
    persister: Arc<Persister>,
    queue: mpsc::Sender<Commit>,
    task: JoinHandle<()>,
}

/// What the committers of a process share.
#[derive(Clone)]
pub struct Shared {
    /// Where blobs are committed.
    pub store: SharedStore,
    /// Where offsets go.
    pub persister: Arc<Persister>,
    /// Figures and health.
    pub telemetry: Telemetry,
}

/// How long a failure is kept back so that the offset before it can be persisted.
const LAST_PERSIST: Duration = Duration::from_secs(5);

/// Commits of a partition that may wait behind the one at work.
const QUEUE: usize = 4;

impl PartitionCommitter {
    /// Starts the partition's task on `runtime`. First of all `position`, where the partition begins, is persisted, if
    /// given: a partition that starts at the end of its log must not start at a later end after a crash.
    pub fn start(
        runtime: &Handle,
        shared: Shared,
        slot: Slot,
        key: FeedPartitionKey,
        position: Option<Offset>,
        events: mpsc::Sender<CommitEvent>,
    ) -> PartitionCommitter {
        let (queue, commits) = mpsc::channel(QUEUE);
        let metrics = shared.telemetry.metrics.feed(&key.feed);
        static NUMBERS: AtomicU64 = AtomicU64::new(1);
        let number = NUMBERS.fetch_add(1, Ordering::Relaxed);
        let persister = shared.persister.clone();
        let worker = Worker { shared, slot, number, key: key.clone(), events, metrics };
        let task = runtime.spawn(async move { worker.run(position, commits).await });
        PartitionCommitter { number, key, persister, queue, task }
    }

    /// Tells its events from those of an earlier committer of the same slot.
    pub fn number(&self) -> Owner {
        self.number
    }

    /// Queues a commit; gives it back when the queue is full or the task has ended.
    ///
    /// # Errors
    /// The commit itself.
    pub fn submit(&self, commit: Commit) -> Result<(), Commit> {
        self.queue.try_send(commit).map_err(|e| match e {
            mpsc::error::TrySendError::Full(commit) | mpsc::error::TrySendError::Closed(commit) => commit,
        })
    }

    /// Whether a commit would be taken now.
    pub fn has_room(&self) -> bool {
        self.queue.capacity() > 0 && !self.queue.is_closed()
    }
}

impl Drop for PartitionCommitter {
    fn drop(&mut self) {
        self.task.abort();
        self.persister.forget(&self.key, self.number);
    }
}

struct Worker {
    shared: Shared,
    slot: Slot,
    number: Owner,
    key: FeedPartitionKey,
    events: mpsc::Sender<CommitEvent>,
    metrics: FeedMetrics,
}

impl Worker {
    async fn run(&self, position: Option<Offset>, mut commits: mpsc::Receiver<Commit>) {
        if let Some(position) = position
            && !self.persist(position).await
        {
            return;
        }
        // Persisting runs beside the next commit: a slow offset storage must not hold up blobs. One wait at a time is
        // enough, since a stored offset stands for all before it.
        let mut committing: Option<BoxFuture<'_, (OffsetRange, Result<(), Error>)>> = None;
        let mut persisting: Option<BoxFuture<'_, bool>> = None;
        let mut to_persist: Option<Offset> = None;
        let mut ended = false;
        loop {
            if persisting.is_none()
                && let Some(next) = to_persist.take()
            {
                persisting = Some(Box::pin(self.persist(next)));
            }
            tokio::select! {
                commit = commits.recv(), if committing.is_none() && !ended => match commit {
                    Some(commit) => {
                        let range = commit.range;
                        committing = Some(Box::pin(async move { (range, self.commit(commit).await) }));
                    }
                    None => ended = true,
                },
                (range, result) = finished(&mut committing), if committing.is_some() => {
                    committing = None;
                    let (slot, committer) = (self.slot, self.number);
                    if let Err(error) = result {
                        // What is committed before it stays true, unless somebody else has taken the partition.
                        let told = if error.class() == Class::Lost {
                            true
                        } else {
                            let rest = self.persist_rest(persisting.take(), to_persist.take());
                            tokio::time::timeout(LAST_PERSIST, rest).await.unwrap_or(true)
                        };
                        if told {
                            let _ = self.events.send(CommitEvent::Failed { slot, committer, error }).await;
                        }
                        return;
                    }
                    if self.events.send(CommitEvent::Committed { slot, committer, range }).await.is_err() {
                        return;
                    }
                    to_persist = Some(range.next);
                }
                stored = finished(&mut persisting), if persisting.is_some() => {
                    persisting = None;
                    if !stored {
                        return;
                    }
                }
                else => return,
            }
        }
    }

    // Before the partition ends: what was committed should not be read again. False when it has failed in this, too.
    async fn persist_rest(&self, under_way: Option<BoxFuture<'_, bool>>, next: Option<Offset>) -> bool {
        if let Some(persisting) = under_way
            && !persisting.await
        {
            return false;
        }
        match next {
            Some(next) => self.persist(next).await,
            None => true,
        }
    }

    async fn commit(&self, commit: Commit) -> Result<(), Error> {
        let Commit { range, blobs } = commit;
        let id = CommitId::random();
        let count = blobs.len();
        // All blocks of all blobs are staged before the first blob becomes visible.
        let sealed = try_join_all(blobs.into_iter().map(PendingBlob::sealed)).await?;
        let store = self.shared.store.as_ref();
        let telemetry = &self.shared.telemetry;
        try_join_all(sealed.iter().map(|(blob, _)| commit_blob(store, blob, id, range, telemetry))).await?;
        self.metrics.blobs.inc_by(count as u64);
        self.metrics.commits.inc();
        info!(source = %self.key, %range, blobs = count, commit = %id, "range committed");
        Ok(())
    }

    // False when the partition cannot go on.
    async fn persist(&self, next: Offset) -> bool {
        let (slot, committer) = (self.slot, self.number);
        match self.shared.persister.persist(&self.key, committer, next).await {
            Ok(next) => {
                debug!(source = %self.key, %next, "offset persisted");
                self.events.send(CommitEvent::Persisted { slot, committer, next }).await.is_ok()
            }
            Err(error) => {
                let error = Error::Persist(error);
                let _ = self.events.send(CommitEvent::Failed { slot, committer, error }).await;
                false
            }
        }
    }
}

// The result of the future in `place`; never ready when there is none.
async fn finished<T>(place: &mut Option<BoxFuture<'_, T>>) -> T {
    match place {
        Some(future) => future.await,
        None => std::future::pending().await,
    }
}
