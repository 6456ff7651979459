//! Where a partition begins to be read after it is assigned.
//!
//! Owns: the order of questions: the offset storage, else `start`.
//! Does not own: seeking there.

use std::sync::Arc;
use std::time::Duration;

use tracing::{info, warn};

use super::Shared;
use crate::error::chain;
use crate::kafka;
use crate::model::{BadOffset, FeedPartitionKey, Offset, TopicPartition};
use crate::plan::Start;
use crate::retry;
use crate::{offset, retry::Backoff};

/// A position that was found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Position {
    /// The next offset to read.
    pub(super) offset: Offset,
    /// Whether the offset storage has it already.
    pub(super) stored: bool,
}

/// Why there is no position to begin at.
#[derive(Debug, thiserror::Error)]
pub(super) enum Error {
    #[error("what the offset storage holds is no offset")]
    Unreadable(#[source] BadOffset),
    #[error("the offset storage cannot be read")]
    Storage(#[source] offset::Error),
    #[error("the position cannot be looked up")]
    Kafka(#[source] kafka::Error),
    #[error(
        "the persisted offset {stored} of {partition} is outside its log [{first}, {next}): the records in between \
         have expired, or the topic was created anew; set the offset in the offset storage to one inside the log"
    )]
    OutOfRange { partition: TopicPartition, stored: Offset, first: Offset, next: Offset },
}

/// Looks up where `partition` begins, waiting for servers that do not answer. `known` is how far this process has committed
/// it, if it has had it before.
pub(super) async fn resolve(
    shared: &Arc<Shared>,
    key: &FeedPartitionKey,
    partition: &TopicPartition,
    known: Option<Offset>,
    start: Start,
) -> Result<Position, Error> {
    let on_failure = |error: &offset::Error, attempts: u32, wait: Duration| {
        let reason = chain(error);
        shared.telemetry.metrics.failure("find offset", "unavailable");
        warn!(source = %key, attempts, ?wait, error = reason, "persisted offset not read, will retry");
        shared
            .telemetry
            .health
            .raise("offset storage (reading)", format!("persisted offsets cannot be read: {reason}"));
    };
    let stored = retry::forever(|_| shared.offsets.find_latest_persisted_offset(key), on_failure)
        .await
        .map_err(Error::Storage)?;
    shared.telemetry.health.clear("offset storage (reading)");
    match stored {
        Some(text) => {
            let stored: Offset = text.parse().map_err(Error::Unreadable)?;
            let log = watermarks(shared, partition).await?;
            if stored < log.first || stored > log.next {
                let (first, next) = (log.first, log.next);
                return Err(Error::OutOfRange { partition: partition.clone(), stored, first, next });
            }
            info!(source = %key, %partition, offset = %stored, end = %log.next, "resuming at the persisted offset");
            Ok(Position { offset: stored, stored: true })
        }
        None if let Some(offset) = known => {
            warn!(source = %key, %partition, %offset, "the persisted offset is gone; going on behind the last commit");
            Ok(Position { offset, stored: false })
        }
        None => {
            let at = partition.clone();
            let offset = asking(shared, move |lookup| lookup.resolve(&at, start)).await?;
            info!(source = %key, %partition, %offset, ?start, "no offset is persisted, starting anew");
            Ok(Position { offset, stored: false })
        }
    }
}

/// First and next offset of the partition's log, waiting for brokers that do not answer.
pub(super) async fn watermarks(
    shared: &Arc<Shared>,
    partition: &TopicPartition,
) -> Result<kafka::Watermarks, Error> {
    let at = partition.clone();
    asking(shared, move |lookup| lookup.watermarks(&at)).await
}

/// Asks the brokers off the async threads, again and again while they do not answer.
async fn asking<T: Send + 'static>(
    shared: &Arc<Shared>,
    question: impl Fn(&kafka::Lookup) -> Result<T, kafka::Error> + Send + Sync + 'static,
) -> Result<T, Error> {
    let question = Arc::new(question);
    let mut backoff = Backoff::network();
    loop {
        let (lookup, question) = (shared.lookup.clone(), question.clone());
        // Few at once: each blocks a thread of the pool that directory stores and offset files need too.
        let permit = shared.asking.acquire().await;
        let answer = tokio::task::spawn_blocking(move || question(&lookup)).await;
        drop(permit);
        let error = match answer {
            Ok(Ok(answer)) => {
                if backoff.attempt() > 0 {
                    shared.telemetry.health.clear("kafka");
                }
                return Ok(answer);
            }
            Ok(Err(error)) if !error.class().is_transient() => return Err(Error::Kafka(error)),
            Ok(Err(error)) => error,
            Err(_) => kafka::Error::Unavailable { reason: "the look-up was interrupted".into() },
        };
        let wait = backoff.next_wait(None);
        let reason = chain(&error);
        warn!(attempts = backoff.attempt(), ?wait, error = reason, "brokers did not answer, will retry");
        shared.telemetry.health.raise("kafka", reason);
        tokio::time::sleep(wait).await;
    }
}
