//! The connector: everything that one plan needs, started and stopped together.
//!
//! Owns: set-up checks that must fail at start, the worker threads, the end of a run.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use tokio::sync::oneshot;
use tokio_util::sync::CancellationToken;
use tracing::{error, info, warn};

use super::schemas::Schemas;
use super::until_end::UntilEnd;
use super::worker::{Orders, Worker};
use super::{Error, Shared};
use crate::budget::Budget;
use crate::commit::{self, Persister};
use crate::error::{Class, chain};
use crate::feed::partition_id;
use crate::kafka::{self, ClientSettings, Lookup, client_config};
use crate::model::{FeedPartitionKey, Offset, TopicPartition};
use crate::plan::{self, Plan};
use crate::producer::{Claims, Stager};
use crate::registry::SchemaRegistry;
use crate::retry::{Backoff, Classify};
use crate::telemetry::Telemetry;
use crate::{offset, store};

/// How long the offset storage may take to close at the end.
const CLOSING: Duration = Duration::from_secs(2);

/// How a run ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// Every partition is committed and persisted up to the end that was current at the start.
    Ended,
    /// It was told to drain, and everything read is committed and persisted.
    Drained,
}

/// Runs plans.
pub struct Connector {
    telemetry: Telemetry,
    drain: CancellationToken,
}

impl Connector {
    /// A connector that reports to `telemetry` and finishes in good order when `drain` is cancelled.
    pub fn new(telemetry: Telemetry, drain: CancellationToken) -> Connector {
        Connector { telemetry, drain }
    }

    /// Runs `plan`, for ever or, with `until_end`, to the ends of the logs as they are now.
    ///
    /// # Errors
    /// What can never succeed is an error at the start: settings, credentials, topics that do not exist. Servers that do
    /// not answer are waited for. See [`Error`] for the ends that are not good.
    pub async fn run(&self, plan: Plan, until_end: bool) -> Result<Outcome, Error> {
        let plan = Arc::new(plan);
        let store = store::open(&plan.store)?;
        let offsets = offset::open(&plan.offset_storage)?;
        let registry = plan.schema_registry.as_ref().map(SchemaRegistry::new).transpose()?;
        let settings =
            ClientSettings { prefetch: 1 << 20, client_id: format!("blobfeed-{}-lookup", plan.name) };
        let lookup = Arc::new(Lookup::new(&client_config(&plan.kafka, &settings))?);
        let ready = async {
            tokio::try_join!(self.containers(&plan, &store), self.topics(&plan, &lookup, until_end))
        };
        let ends = tokio::select! {
            ready = ready => ready?.1,
            () = self.drain.cancelled() => return Ok(Outcome::Drained),
        };
        let until_end = until_end.then(|| Arc::new(UntilEnd::new(ends)));

        let memory = plan.memory_shares();
        let budget = Budget::new(bytes(memory.records));
        let telemetry = self.telemetry.clone();
        let runtime = tokio::runtime::Handle::current();
        let concurrency = match &plan.store {
            plan::Store::Azure(azure) => azure.concurrency,
            plan::Store::Directory(_) | plan::Store::Memory => 4,
        };
        let stager =
            Stager::new(store.clone(), runtime.clone(), concurrency, budget.clone(), telemetry.clone());
        let persister = Arc::new(Persister::start(&runtime, offsets.clone(), telemetry.clone()));
        let shared = Arc::new(Shared {
            stager,
            claims: Claims::default(),
            commits: commit::Shared { store, persister: persister.clone(), telemetry: telemetry.clone() },
            schemas: Schemas::new(registry, telemetry.clone()),
            offsets: offsets.clone(),
            lookup,
            asking: tokio::sync::Semaphore::new(8),
            budget,
            telemetry,
            runtime,
            until_end: until_end.clone(),
            plan: plan.clone(),
        });
        let outcome = self.work(&shared, bytes(memory.prefetch_per_worker)).await;
        // Nothing is left to be stored that the drain has not waited for; a server that hangs must not hold the process.
        let close = async {
            persister.stop().await;
            offsets.close().await;
        };
        if tokio::time::timeout(CLOSING, close).await.is_err() {
            warn!("the offset storage did not close in time");
        }
        outcome
    }

    async fn work(&self, shared: &Arc<Shared>, prefetch: usize) -> Result<Outcome, Error> {
        let orders = Arc::new(Orders::default());
        let mut workers = Vec::new();
        for number in 0..shared.plan.kafka.workers {
            workers.push(start_worker(shared, &orders, number, prefetch)?);
        }
        info!(plan = %shared.plan.name, workers = workers.len(), "connector running");
        let mut any = futures::future::select_all(workers.into_iter().map(Box::pin));
        let outcome = tokio::select! {
            (ended, _, others) = &mut any => {
                // The others give their partitions up in good order, so that another process can go on.
                orders.drain.store(true, Ordering::Release);
                futures::future::join_all(others).await;
                let odd = || Error::Worker { reason: "it ended without being told to".to_owned() };
                return Err(ended.err().unwrap_or_else(odd));
            }
            () = self.drain.cancelled() => Outcome::Drained,
            () = all_ended(shared), if shared.until_end.is_some() => Outcome::Ended,
        };
        orders.drain.store(true, Ordering::Release);
        let all = futures::future::join_all(any.into_inner()).await;
        let unfinished = all.into_iter().try_fold(0, |sum, worker| worker.map(|n| sum + n))?;
        if unfinished > 0 {
            return Err(Error::DrainIncomplete { partitions: unfinished });
        }
        let reasons = shared.until_end.as_ref().map(|u| u.failures()).unwrap_or_default();
        if outcome == Outcome::Ended && !reasons.is_empty() {
            return Err(Error::Partitions { reasons });
        }
        Ok(outcome)
    }

    // Containers are made or looked at before anything is read, so that a wrong key or name shows at once.
    async fn containers(&self, plan: &Plan, store: &store::SharedStore) -> Result<(), Error> {
        let create = match &plan.store {
            plan::Store::Azure(azure) => azure.create_container,
            plan::Store::Directory(_) | plan::Store::Memory => true,
        };
        let containers: BTreeSet<_> = plan.feeds.iter().map(|feed| feed.target.container.clone()).collect();
        for container in containers {
            self.until_answered("store", || store.ensure_container(&container, create)).await?;
        }
        Ok(())
    }

    // Whether all topics are there; and where they end, if the run ends there.
    async fn topics(
        &self,
        plan: &Plan,
        lookup: &Arc<Lookup>,
        until_end: bool,
    ) -> Result<Vec<(TopicPartition, Offset)>, Error> {
        let topics: Vec<Arc<str>> = plan.feeds.iter().flat_map(|feed| feed.topics.iter().cloned()).collect();
        let ask = || {
            let (lookup, topics) = (lookup.clone(), topics.clone());
            async move {
                let answer = tokio::task::spawn_blocking(move || look_at(&lookup, &topics, until_end)).await;
                answer.unwrap_or_else(|_| {
                    Err(kafka::Error::Unavailable { reason: "the look-up was interrupted".to_owned() })
                })
            }
        };
        Ok(self.until_answered("kafka", ask).await?)
    }

    // Unlike later on, a missing permission is final here: nothing runs yet that a restart would disturb.
    async fn until_answered<T, E, Fut>(&self, subject: &str, mut ask: impl FnMut() -> Fut) -> Result<T, E>
    where
        E: Classify + 'static,
        Fut: Future<Output = Result<T, E>>,
    {
        let mut backoff = Backoff::network();
        loop {
            match ask().await {
                Ok(answer) => {
                    self.telemetry.health.clear(subject);
                    return Ok(answer);
                }
                Err(error) if error.class() == Class::Retry => {
                    let wait = backoff.next_wait(error.retry_after()).min(Duration::from_secs(10));
                    let reason = chain(&error);
                    warn!(
                        subject,
                        attempts = backoff.attempt(),
                        ?wait,
                        error = reason,
                        "not ready, will retry"
                    );
                    self.telemetry.health.raise(subject, reason);
                    tokio::time::sleep(wait).await;
                }
                Err(error) => return Err(error),
            }
        }
    }
}

// The plan's sizes fit the machine that it runs on; on a smaller one the most that there is stands for them.
fn bytes(size: u64) -> usize {
    usize::try_from(size).unwrap_or(usize::MAX)
}

fn look_at(
    lookup: &Lookup,
    topics: &[Arc<str>],
    ends_too: bool,
) -> Result<Vec<(TopicPartition, Offset)>, kafka::Error> {
    let mut ends = Vec::new();
    for topic in topics {
        for partition in lookup.partitions(topic)? {
            let at = TopicPartition { topic: topic.clone(), partition };
            if ends_too {
                let next = lookup.watermarks(&at)?.next;
                ends.push((at, next));
            }
        }
    }
    Ok(ends)
}

type WorkerResult = Result<usize, Error>;

fn start_worker(
    shared: &Arc<Shared>,
    orders: &Arc<Orders>,
    number: usize,
    prefetch: usize,
) -> Result<impl Future<Output = WorkerResult> + use<>, Error> {
    let (ended, end) = oneshot::channel();
    let (shared, orders) = (shared.clone(), orders.clone());
    let run = move || {
        let _ = ended.send(serve(&shared, &orders, number, prefetch));
    };
    std::thread::Builder::new()
        .name(format!("worker-{number}"))
        .spawn(run)
        .map_err(|e| Error::Worker { reason: e.to_string() })?;
    Ok(async move {
        // The sender is dropped unsent only when the thread panics.
        end.await.unwrap_or_else(|_| Err(Error::Worker { reason: format!("worker {number} panicked") }))
    })
}

// Runs a worker, and makes its client anew when it fails for good.
fn serve(shared: &Arc<Shared>, orders: &Arc<Orders>, number: usize, prefetch: usize) -> WorkerResult {
    let mut backoff = Backoff::new(Duration::from_secs(1), Duration::from_secs(60));
    loop {
        let result = Worker::new(shared.clone(), orders.clone(), number, prefetch)
            .map_err(Error::from)
            .and_then(Worker::run);
        shared.telemetry.metrics.ended(number);
        let error = match result {
            Err(Error::Kafka(error @ kafka::Error::Fatal { .. })) => error,
            other => return other,
        };
        if orders.drain.load(Ordering::Acquire) {
            return Err(error.into());
        }
        let wait = backoff.next_wait(None);
        error!(worker = number, ?wait, error = chain(&error), "kafka client failed, making it anew");
        let until = Instant::now() + wait;
        while Instant::now() < until && !orders.drain.load(Ordering::Acquire) {
            std::thread::sleep(Duration::from_millis(100));
        }
    }
}

// Ready when every partition is persisted up to its end, also those that other members of the group read.
async fn all_ended(shared: &Arc<Shared>) {
    let Some(until_end) = &shared.until_end else { return std::future::pending().await };
    let mut rounds: u32 = 0;
    loop {
        let open = until_end.open();
        if open.is_empty() {
            return;
        }
        rounds += 1;
        // Partitions that other members read are persisted without our hearing of it.
        if rounds.is_multiple_of(20) {
            let ours = shared.telemetry.status.snapshot();
            for at in open {
                let Some(key) = key_of(&shared.plan, &at) else { continue };
                if ours.contains_key(&key.source()) {
                    continue;
                }
                if let Ok(Some(stored)) = shared.offsets.find_latest_persisted_offset(&key).await
                    && let Ok(stored) = stored.parse()
                {
                    until_end.persisted(&at, stored);
                }
            }
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

fn key_of(plan: &Plan, at: &TopicPartition) -> Option<FeedPartitionKey> {
    let feed = plan.feeds.iter().find(|feed| feed.topics.contains(&at.topic))?;
    let id = partition_id(feed.topics.len() == 1, at);
    Some(FeedPartitionKey { plan: plan.name.clone(), feed: feed.name.clone(), id })
}
