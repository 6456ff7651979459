//! A feed of Kafka topics, read by assignment.

use std::sync::Arc;

use async_trait::async_trait;

use super::{Error, Feed, FeedPartition};
use crate::feed::partition_id;
use crate::kafka::{AssignedConsumer, ClientSettings, Error as ClientError, Lookup, Received, client_config};
use crate::model::{Offset, Record, TopicPartition};
use crate::plan::{self, Start};

/// Bytes that a partition's client may fetch ahead.
const PREFETCH: usize = 8 << 20;

/// All partitions of some topics. No group takes part: whoever reads has all of them, and two readers have them twice.
#[derive(Debug, Clone)]
pub struct KafkaFeed {
    kafka: plan::Kafka,
    topics: Vec<String>,
    start: Start,
    until_end: bool,
}

impl KafkaFeed {
    /// The partitions of `topics`. They begin at `start`, as it is when [`Feed::partitions`] is called.
    pub fn new(kafka: plan::Kafka, topics: Vec<String>, start: Start) -> KafkaFeed {
        KafkaFeed { kafka, topics, start, until_end: false }
    }

    /// The same feed, whose partitions end where their logs end at the moment; otherwise they wait for more for ever.
    #[must_use]
    pub fn until_end(mut self) -> KafkaFeed {
        self.until_end = true;
        self
    }

    fn settings(&self) -> ClientSettings {
        ClientSettings { prefetch: PREFETCH, client_id: "blobfeed".to_owned() }
    }

    // Blocks.
    fn look_up(&self) -> Result<Vec<(TopicPartition, Offset)>, ClientError> {
        let lookup = Lookup::new(&client_config(&self.kafka, &self.settings()))?;
        let mut found = Vec::new();
        for topic in &self.topics {
            let topic: Arc<str> = topic.as_str().into();
            for partition in lookup.partitions(&topic)? {
                let at = TopicPartition { topic: topic.clone(), partition };
                let start = lookup.resolve(&at, self.start)?;
                found.push((at, start));
            }
        }
        Ok(found)
    }
}

#[async_trait]
impl Feed for KafkaFeed {
    async fn partitions(&self) -> Result<Vec<Box<dyn FeedPartition>>, Error> {
        let feed = self.clone();
        let found = tokio::task::spawn_blocking(move || feed.look_up()).await;
        let found = found.map_err(|e| ClientError::Client { reason: e.to_string() })??;
        let mut partitions: Vec<Box<dyn FeedPartition>> = Vec::new();
        for (at, start) in found {
            let id = partition_id(self.topics.len() == 1, &at);
            let consumer = AssignedConsumer::new(&self.kafka, &self.settings(), at)?;
            let (next, until_end) = (start, self.until_end);
            partitions.push(Box::new(KafkaPartition { id, consumer, next, started: false, until_end }));
        }
        Ok(partitions)
    }
}

struct KafkaPartition {
    id: Arc<str>,
    consumer: AssignedConsumer,
    next: Offset,
    // Whether the client reads from `next` on.
    started: bool,
    until_end: bool,
}

#[async_trait]
impl FeedPartition for KafkaPartition {
    fn id(&self) -> &str {
        &self.id
    }

    async fn next(&mut self) -> Result<Option<Record>, Error> {
        loop {
            if !self.started {
                self.consumer.start_at(self.next)?;
                self.started = true;
            }
            match self.consumer.receive().await {
                Ok(Received::Record(record)) if record.offset >= self.next => {
                    self.next = record.offset.following();
                    return Ok(Some(record));
                }
                // Fetched before the position was set.
                Ok(Received::Record(_)) => {}
                Ok(Received::End) if self.until_end => {
                    // The end is told once: a later call asks again.
                    self.started = false;
                    return Ok(None);
                }
                Ok(Received::End) => {}
                Err(error) => {
                    self.started = false;
                    return Err(error.into());
                }
            }
        }
    }

    fn supports_offset_management(&self) -> bool {
        true
    }

    fn offset(&self) -> Option<String> {
        Some(self.next.to_string())
    }

    async fn set_offset(&mut self, offset: &str) -> Result<(), Error> {
        let bad = |source| Error::BadOffset { partition: self.id.to_string(), source };
        self.next = offset.parse().map_err(bad)?;
        self.started = false;
        Ok(())
    }
}
