//! A member of a consumer group.
//!
//! Owns: the client, its subscription, the answer to rebalances, seeks and pauses.
//! Does not own: positions. The client's own idea of a position is never used: every resume seeks to ours first.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use rdkafka::client::ClientContext;
use rdkafka::config::ClientConfig;
use rdkafka::consumer::{BaseConsumer, CommitMode, Consumer, ConsumerContext};
use rdkafka::error::KafkaError;
use rdkafka::topic_partition_list::TopicPartitionList;
use rdkafka::types::{RDKafkaErrorCode as Code, RDKafkaRespErr};
use tracing::{debug, warn};

use super::raw::LaneQueue;
use super::{Error, redact, secrets_of};
use crate::model::{GroupOffsets, Offset, Secret, TopicPartition};

/// What happened to the assignment since the last poll.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum GroupEvent {
    /// These partitions are ours now. They are paused until [`GroupConsumer::start_at`].
    Assigned(Vec<TopicPartition>),
    /// A record of this partition arrived where none should: it missed the forward, and is not delivered again. What was
    /// read of the partition and is not committed has to be read anew.
    Stray(TopicPartition),
    /// These partitions have to be given up: finish them, then call [`GroupConsumer::release`]. `lost` when they may
    /// already be with another member, so that nothing may be finished.
    Revoked {
        /// Which.
        partitions: Vec<TopicPartition>,
        /// Whether the group has already given them to others.
        lost: bool,
    },
}

/// Collects what librdkafka reports; its callbacks run on the thread that polls.
pub struct Events {
    secrets: Vec<Secret>,
    group: Mutex<Vec<GroupEvent>>,
    // Events that the client waits for an answer to.
    unanswered: AtomicUsize,
    closing: AtomicBool,
    last_error: Mutex<Option<String>>,
}

impl Events {
    fn clean(&self, text: &str) -> String {
        self.secrets.iter().fold(redact(text), |text, secret| secret.cut_from(&text))
    }

    fn note(&self, error: &KafkaError, reason: &str) {
        let text = self.clean(reason);
        debug!(%error, reason = text, "kafka client reports an error");
        // A single connection that closes is everyday life; these keep records from arriving.
        let serious = matches!(
            error.rdkafka_error_code(),
            Some(
                Code::AllBrokersDown
                    | Code::Authentication
                    | Code::SaslAuthenticationFailed
                    | Code::SSL
                    | Code::Resolve
                    | Code::PollExceeded
                    | Code::UnknownTopicOrPartition
                    | Code::UnknownTopic
                    | Code::UnknownPartition
                    | Code::GroupAuthorizationFailed
                    | Code::TopicAuthorizationFailed
            )
        );
        if serious {
            *self.last_error.lock().unwrap_or_else(PoisonError::into_inner) = Some(text);
        }
    }
}

impl ClientContext for Events {
    fn error(&self, error: KafkaError, reason: &str) {
        self.note(&error, reason);
    }

    fn log(&self, level: rdkafka::config::RDKafkaLogLevel, facility: &str, message: &str) {
        use rdkafka::config::RDKafkaLogLevel as L;
        let message = self.clean(message);
        // Errors of a topic are put into its partitions' queues, and the batch call logs what is no message instead of
        // returning it: there is no other way to hear of a topic that was deleted.
        if facility == "ERROR" {
            *self.last_error.lock().unwrap_or_else(PoisonError::into_inner) = Some(message.clone());
        }
        match level {
            L::Emerg | L::Alert | L::Critical | L::Error | L::Warning => {
                warn!(target: "librdkafka", facility, "{message}");
            }
            L::Notice | L::Info => debug!(target: "librdkafka", facility, "{message}"),
            L::Debug => tracing::trace!(target: "librdkafka", facility, "{message}"),
        }
    }
}

impl ConsumerContext for Events {
    // Nothing is assigned or given up here: the owner does it when it has finished what belongs before it, and goes on
    // polling meanwhile.
    fn rebalance(&self, consumer: &BaseConsumer<Self>, err: RDKafkaRespErr, list: &mut TopicPartitionList) {
        let assign = err == RDKafkaRespErr::RD_KAFKA_RESP_ERR__ASSIGN_PARTITIONS;
        if self.closing.load(Ordering::Acquire) {
            // Every event has to be answered, or the client waits for the answer for ever; nobody is there to do it later.
            let answered =
                if assign { consumer.incremental_assign(list) } else { consumer.incremental_unassign(list) };
            if answered.is_err() {
                let _ = consumer.unassign();
            }
            return;
        }
        self.unanswered.fetch_add(1, Ordering::AcqRel);
        let partitions = from_list(list);
        let event = if assign {
            GroupEvent::Assigned(partitions)
        } else {
            GroupEvent::Revoked { partitions, lost: consumer.assignment_lost() }
        };
        self.group.lock().unwrap_or_else(PoisonError::into_inner).push(event);
    }

    fn commit_callback(&self, result: Result<(), KafkaError>, _: &TopicPartitionList) {
        // Only lag tools read these offsets, and the next commit brings them up to date.
        if let Err(error) = result {
            debug!(%error, "committing the group's own offsets failed");
        }
    }
}

/// A consumer-group member whose partitions are read through a [`LaneQueue`].
pub struct GroupConsumer {
    consumer: Arc<BaseConsumer<Events>>,
}

impl GroupConsumer {
    /// A member of the group in `config` that subscribes to `topics`. Connects in the background.
    ///
    /// # Errors
    /// [`Error::Configuration`] when librdkafka refuses a property.
    pub fn new(config: &ClientConfig, topics: &[&str]) -> Result<GroupConsumer, Error> {
        let secrets = secrets_of(config);
        let events = Events {
            secrets,
            group: Mutex::new(Vec::new()),
            unanswered: AtomicUsize::new(0),
            closing: AtomicBool::new(false),
            last_error: Mutex::new(None),
        };
        let consumer: BaseConsumer<Events> =
            config.create_with_context(events).map_err(Error::configuration)?;
        consumer.subscribe(topics).map_err(Error::configuration)?;
        Ok(GroupConsumer { consumer: Arc::new(consumer) })
    }

    /// A queue for the partitions of this member.
    pub fn lane_queue(&self) -> LaneQueue {
        LaneQueue::new(self.consumer.clone())
    }

    /// A handle that commits the group's own offsets, from any thread.
    pub fn group_offsets(&self) -> Arc<dyn GroupOffsets> {
        Arc::new(GroupCommit { consumer: self.consumer.clone() })
    }

    /// Serves the group: must be called at least every max.poll.interval.ms. Never blocks.
    ///
    /// # Errors
    /// [`Error::Fatal`] when the client cannot go on and has to be made anew.
    pub fn poll(&self) -> Result<Vec<GroupEvent>, Error> {
        // One event per poll; a handful keeps up with any rebalance without starving the lane.
        for _ in 0..8 {
            match self.consumer.poll(Duration::ZERO) {
                None => break,
                Some(Ok(message)) => {
                    use rdkafka::message::Message as _;
                    let partition =
                        TopicPartition { topic: message.topic().into(), partition: message.partition() };
                    let mut events =
                        self.consumer.context().group.lock().unwrap_or_else(PoisonError::into_inner);
                    events.push(GroupEvent::Stray(partition));
                }
                Some(Err(KafkaError::MessageConsumptionFatal(code))) => {
                    return Err(Error::Fatal { reason: redact(&code.to_string()) });
                }
                Some(Err(error)) => self.consumer.context().note(&error, &error.to_string()),
            }
        }
        let mut events = self.consumer.context().group.lock().unwrap_or_else(PoisonError::into_inner);
        Ok(std::mem::take(&mut *events))
    }

    /// The last error that the client reported of a kind that keeps records from arriving; forgets it.
    pub fn take_last_error(&self) -> Option<String> {
        self.consumer.context().last_error.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    /// How far each assigned partition has been dequeued: behind the last record or transaction marker. Partitions that
    /// have delivered nothing since they were started are left out.
    pub fn positions(&self) -> Vec<(TopicPartition, Offset)> {
        let Ok(list) = self.consumer.position() else { return Vec::new() };
        let elements = list.elements();
        let position = |e: &rdkafka::topic_partition_list::TopicPartitionListElem<'_>| match e.offset() {
            rdkafka::Offset::Offset(offset) => {
                let at = TopicPartition { topic: e.topic().into(), partition: e.partition() };
                Offset::new(offset).ok().map(|offset| (at, offset))
            }
            _ => None,
        };
        elements.iter().filter_map(position).collect()
    }

    /// Takes over assigned partitions, paused. Call [`LaneQueue::forward`] for each before.
    ///
    /// # Errors
    /// [`Error::Client`] when the assignment has changed again meanwhile; the group then says so by another event.
    pub fn take(&self, partitions: &[TopicPartition]) -> Result<(), Error> {
        // Offset 0 keeps the client from looking up a position: ours is set by `start_at`, and until then the partition
        // is paused and its records are ignored.
        let list = list_with(partitions.iter().map(|p| (p, Offset::ZERO)))?;
        // Before and after: a fetch at offset 0 that is answered before the pause could end the partition with an error.
        // Before, the partition is known to the client only where it was forwarded; so its answer does not matter.
        if !partitions.is_empty() {
            let _ = self.consumer.pause(&list);
        }
        self.consumer.incremental_assign(&list).map_err(Error::client)?;
        self.answered();
        if partitions.is_empty() { Ok(()) } else { self.consumer.pause(&list).map_err(Error::client) }
    }

    /// Lets partitions deliver from the given offsets on, whatever the client's own positions are. One result each, in
    /// order; [`Error::Client`] where a partition is not ready for it yet: try again.
    pub fn start_at(&self, positions: &[(TopicPartition, Offset)]) -> Vec<Result<(), Error>> {
        let sought = self.seek(positions);
        let results: Vec<Result<(), Error>> = match sought {
            Ok(answer) => positions
                .iter()
                .map(|(p, _)| match answer.find_partition(&p.topic, p.partition) {
                    Some(element) => element.error().map_err(Error::client),
                    None => Err(Error::Client { reason: format!("no answer for {p}") }),
                })
                .collect(),
            Err(error) => {
                let reason = error.to_string();
                positions.iter().map(|_| Err(Error::Client { reason: reason.clone() })).collect()
            }
        };
        let ready = positions.iter().zip(&results).filter(|(_, result)| result.is_ok());
        let resumed = list_with(ready.map(|((p, offset), _)| (p, *offset))).and_then(|list| {
            if list.count() == 0 { Ok(()) } else { self.consumer.resume(&list).map_err(Error::client) }
        });
        match resumed {
            Ok(()) => results,
            Err(error) => {
                let reason = error.to_string();
                positions.iter().map(|_| Err(Error::Client { reason: reason.clone() })).collect()
            }
        }
    }

    /// Stops delivery and drops what was fetched ahead.
    ///
    /// # Errors
    /// [`Error::Client`] when the partition is not assigned.
    pub fn pause(&self, partition: &TopicPartition) -> Result<(), Error> {
        self.consumer.pause(&list_with([(partition, Offset::ZERO)])?).map_err(Error::client)
    }

    /// Gives up revoked partitions; the rebalance goes on after it.
    ///
    /// # Errors
    /// [`Error::Client`] when they are not assigned any more.
    pub fn release(&self, partitions: &[TopicPartition]) -> Result<(), Error> {
        let list = list_with(partitions.iter().map(|p| (p, Offset::ZERO)))?;
        self.consumer.incremental_unassign(&list).map_err(Error::client)?;
        self.answered();
        Ok(())
    }

    /// Leaves the group; the partitions left are given up by `Revoked` events as usual.
    pub fn leave(&self) {
        self.consumer.unsubscribe();
    }

    /// Whether nothing is assigned.
    pub fn is_idle(&self) -> bool {
        self.consumer.assignment().is_ok_and(|list| list.count() == 0)
    }

    // From now on rebalances are answered at once, also the one that waits for its answer now.
    fn close(&self) {
        self.consumer.context().closing.store(true, Ordering::Release);
        if self.consumer.context().unanswered.swap(0, Ordering::AcqRel) > 0 {
            let _ = self.consumer.unassign();
        }
    }

    fn answered(&self) {
        let less = |n: usize| n.checked_sub(1);
        let _ = self.consumer.context().unanswered.fetch_update(Ordering::AcqRel, Ordering::Acquire, less);
    }

    fn seek(&self, positions: &[(TopicPartition, Offset)]) -> Result<TopicPartitionList, Error> {
        let list = list_with(positions.iter().map(|(p, offset)| (p, *offset)))?;
        self.consumer.seek_partitions(list, Duration::from_secs(5)).map_err(Error::client)
    }
}

impl Drop for GroupConsumer {
    // Also on an early return or a panic: nobody is there any more to answer rebalances, and ending the client would wait
    // for the answers for ever.
    fn drop(&mut self) {
        self.close();
    }
}

struct GroupCommit {
    consumer: Arc<BaseConsumer<Events>>,
}

impl GroupOffsets for GroupCommit {
    fn commit_group_offsets(&self, positions: &[(TopicPartition, Offset)]) {
        let Ok(list) = list_with(positions.iter().map(|(p, o)| (p, *o))) else { return };
        // Errors in the middle of a rebalance are expected, see the callback.
        if let Err(error) = self.consumer.commit(&list, CommitMode::Async) {
            debug!(%error, "committing the group's own offsets failed");
        }
    }
}

pub(super) fn list_with<'a>(
    partitions: impl IntoIterator<Item = (&'a TopicPartition, Offset)>,
) -> Result<TopicPartitionList, Error> {
    let mut list = TopicPartitionList::new();
    for (partition, offset) in partitions {
        let offset = rdkafka::Offset::Offset(offset.get());
        list.add_partition_offset(&partition.topic, partition.partition, offset).map_err(Error::client)?;
    }
    Ok(list)
}

fn from_list(list: &TopicPartitionList) -> Vec<TopicPartition> {
    let elements = list.elements();
    elements.iter().map(|e| TopicPartition { topic: e.topic().into(), partition: e.partition() }).collect()
}
