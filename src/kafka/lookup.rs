//! Questions to the brokers outside of consuming: topics, ends of logs, offsets by time.
//!
//! Owns: a client without a group. Calls block for up to their time-out: use them off the async threads.

use std::time::{Duration, UNIX_EPOCH};

use rdkafka::config::ClientConfig;
use rdkafka::consumer::{BaseConsumer, Consumer};
use rdkafka::error::KafkaError;
use rdkafka::topic_partition_list::TopicPartitionList;
use rdkafka::types::RDKafkaErrorCode as Code;

use super::quiet::Quiet;
use super::{Error, redact};
use crate::model::{Offset, TopicPartition};
use crate::plan::Start;

const TIMEOUT: Duration = Duration::from_secs(10);

/// First and next offset of a partition's log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Watermarks {
    /// The oldest offset that can be read.
    pub first: Offset,
    /// The offset that the next record will get.
    pub next: Offset,
}

/// A client that asks.
pub struct Lookup {
    consumer: BaseConsumer<Quiet>,
}

impl Lookup {
    /// A client with the connection settings of `config`.
    ///
    /// # Errors
    /// [`Error::Configuration`] when librdkafka refuses a property.
    pub fn new(config: &ClientConfig) -> Result<Lookup, Error> {
        let consumer = config.create_with_context(Quiet::new(config)).map_err(Error::configuration)?;
        Ok(Lookup { consumer })
    }

    /// The partitions of `topic`, ascending.
    ///
    /// # Errors
    /// [`Error::UnknownTopic`] when the brokers say that it is not there; [`Error::Unavailable`] when none answers.
    pub fn partitions(&self, topic: &str) -> Result<Vec<i32>, Error> {
        let metadata = self
            .consumer
            .fetch_metadata(Some(topic), TIMEOUT)
            .map_err(|e| self.explained(of_topic(topic, &e)))?;
        let Some(found) = metadata.topics().iter().find(|t| t.name() == topic) else {
            return Err(Error::UnknownTopic { topic: topic.to_owned() });
        };
        if let Some(error) = found.error() {
            return Err(of_code(topic, error.into()));
        }
        let mut partitions: Vec<i32> = found.partitions().iter().map(|p| p.id()).collect();
        if partitions.is_empty() {
            return Err(Error::UnknownTopic { topic: topic.to_owned() });
        }
        partitions.sort_unstable();
        Ok(partitions)
    }

    /// First and next offset of `partition`; under `read_committed` the next is the last stable one.
    ///
    /// # Errors
    /// As [`Lookup::partitions`].
    pub fn watermarks(&self, partition: &TopicPartition) -> Result<Watermarks, Error> {
        let (first, next) = self
            .consumer
            .fetch_watermarks(&partition.topic, partition.partition, TIMEOUT)
            .map_err(|e| of_topic(&partition.topic, &e))?;
        let offset = |value| {
            Offset::new(value)
                .map_err(|e| Error::Unavailable { reason: format!("watermark of {partition}: {e}") })
        };
        Ok(Watermarks { first: offset(first)?, next: offset(next)? })
    }

    // A time-out by itself says nothing; what the client has reported meanwhile often does.
    fn explained(&self, error: Error) -> Error {
        // Its reports wait in a queue until somebody polls.
        for _ in 0..64 {
            self.consumer.poll(Duration::ZERO);
        }
        match (error, self.consumer.context().last_error()) {
            (Error::Unavailable { reason }, Some(last)) => {
                Error::Unavailable { reason: format!("{reason} (the client says: {last})") }
            }
            (error, _) => error,
        }
    }

    /// The offset where `start` is now.
    ///
    /// # Errors
    /// As [`Lookup::partitions`].
    pub fn resolve(&self, partition: &TopicPartition, start: Start) -> Result<Offset, Error> {
        let watermarks = self.watermarks(partition)?;
        let time = match start {
            Start::Earliest => return Ok(watermarks.first),
            Start::Latest => return Ok(watermarks.next),
            Start::At(time) => time,
        };
        let millis = time.duration_since(UNIX_EPOCH).unwrap_or_default().as_millis();
        let mut list = TopicPartitionList::new();
        let millis = rdkafka::Offset::Offset(i64::try_from(millis).unwrap_or(i64::MAX));
        list.add_partition_offset(&partition.topic, partition.partition, millis).map_err(Error::client)?;
        let answer =
            self.consumer.offsets_for_times(list, TIMEOUT).map_err(|e| of_topic(&partition.topic, &e))?;
        let found = answer.find_partition(&partition.topic, partition.partition).map(|e| e.offset());
        match found {
            Some(rdkafka::Offset::Offset(offset)) => {
                Offset::new(offset).map_err(|e| Error::Unavailable { reason: e.to_string() })
            }
            // Nothing is that young: start behind the newest record.
            _ => Ok(watermarks.next),
        }
    }
}

fn of_topic(topic: &str, error: &KafkaError) -> Error {
    match error.rdkafka_error_code() {
        Some(code) => of_code(topic, code),
        None => Error::Unavailable { reason: redact(&error.to_string()) },
    }
}

fn of_code(topic: &str, code: Code) -> Error {
    match code {
        Code::UnknownTopic | Code::UnknownTopicOrPartition | Code::UnknownPartition | Code::InvalidTopic => {
            Error::UnknownTopic { topic: topic.to_owned() }
        }
        Code::TopicAuthorizationFailed | Code::ClusterAuthorizationFailed => {
            Error::Denied { reason: format!("Describe on topic {topic:?} is needed ({code})") }
        }
        Code::SaslAuthenticationFailed | Code::Authentication => {
            Error::Denied { reason: format!("authentication failed ({code}): check the sasl.* properties") }
        }
        _ => Error::Unavailable { reason: redact(&code.to_string()) },
    }
}
