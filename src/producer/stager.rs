//! Stages blocks in the background.
//!
//! Owns: the number of requests under way, repeating them until the store has the block.
//! Does not own: which blocks make a blob, commits.
//! Crash: staged blocks are invisible; the next attempt at the range stages its own under another nonce.

use std::sync::Arc;
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tracing::{debug, info, warn};

use super::{Destination, Error};
use crate::budget::Budget;
use crate::error::chain;
use crate::model::{BlockContent, BlockId};
use crate::retry;
use crate::store::{self, SharedStore};
use crate::telemetry::{FeedMetrics, Telemetry};

/// The staging tasks of one blob; they end when it is dropped.
pub(super) type Staging = JoinSet<Result<(u32, BlockId), store::Error>>;

/// Sends blocks to a store. Cloning shares the limit on requests under way.
#[derive(Clone)]
pub struct Stager {
    store: SharedStore,
    runtime: Handle,
    permits: Arc<Semaphore>,
    budget: Budget,
    telemetry: Telemetry,
}

impl Stager {
    /// A stager that has at most `concurrency` requests under way on `runtime`.
    pub fn new(
        store: SharedStore,
        runtime: Handle,
        concurrency: usize,
        budget: Budget,
        telemetry: Telemetry,
    ) -> Stager {
        let permits = Arc::new(Semaphore::new(concurrency.max(1)));
        Stager { store, runtime, permits, budget, telemetry }
    }

    /// The store that blocks go to.
    pub fn store(&self) -> &SharedStore {
        &self.store
    }

    /// The budget that open blobs take their chunks from.
    pub fn budget(&self) -> &Budget {
        &self.budget
    }

    /// Begins to stage `content` as block `number`. Transient failures are repeated for as long as the task lives.
    pub(super) fn stage(
        &self,
        tasks: &mut Staging,
        destination: &Arc<Destination>,
        number: u32,
        content: BlockContent,
        metrics: &FeedMetrics,
    ) {
        let in_flight = self.budget.mark_in_flight(content.len());
        let (stager, destination, metrics) = (self.clone(), destination.clone(), metrics.clone());
        let task = async move {
            let id = stager.until_staged(&destination, number, &content).await?;
            metrics.blocks.inc();
            metrics.block_bytes.inc_by(content.len() as u64);
            // In this order, so that nobody sees bytes that are neither free nor about to be.
            drop(content);
            drop(in_flight);
            Ok((number, id))
        };
        tasks.spawn_on(task, &self.runtime);
    }

    async fn until_staged(
        &self,
        destination: &Destination,
        number: u32,
        content: &BlockContent,
    ) -> Result<BlockId, store::Error> {
        let attempt = |attempt: u32| async move {
            let _permit = self.permits.acquire().await.expect("the semaphore is never closed");
            let blob = destination.resolve(self.store.as_ref()).await?;
            // A new id for each try: a request that was given up may still arrive, and must not matter then.
            let id = BlockId::new(destination.nonce(), number, attempt);
            self.store.stage_block(blob, &id, content).await?;
            if attempt > 0 {
                info!(%blob, number, attempt, "block staged after retries");
                self.telemetry.health.clear(&subject(destination));
            }
            debug!(%blob, %id, bytes = content.len(), "block staged");
            Ok(id)
        };
        let on_failure = |error: &store::Error, attempts: u32, wait: Duration| {
            let blob = destination.label();
            let reason = chain(error);
            self.telemetry.metrics.failure("Put Block", error.kind());
            warn!(blob, number, attempts, ?wait, error = reason, "staging failed, will retry");
            self.telemetry.health.raise(&subject(destination), format!("blocks cannot be staged: {reason}"));
        };
        retry::forever(attempt, on_failure).await
    }
}

// One condition a container: another one that works says nothing about it. It ends when a block that failed gets through.
fn subject(destination: &Destination) -> String {
    format!("store {} (staging)", destination.container())
}

/// The result of a staging task, with the blob's name for whoever reads the message.
pub(super) fn staged(
    result: Result<Result<(u32, BlockId), store::Error>, tokio::task::JoinError>,
    destination: &Destination,
) -> Result<(u32, BlockId), Error> {
    match result {
        Ok(Ok(block)) => Ok(block),
        Ok(Err(source)) => {
            debug_assert!(!source.class().is_transient(), "transient errors are retried");
            Err(Error::Staging { blob: destination.label(), source })
        }
        Err(_) => Err(Error::Interrupted),
    }
}
