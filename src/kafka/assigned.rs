//! A consumer of one partition, assigned by hand: no group, no rebalances.
//!
//! Owns: the client and what it fetches.
//! Does not own: the position. Every start says where to begin, and the client's own idea of it is never used.

use rdkafka::consumer::{Consumer, StreamConsumer};
use rdkafka::error::KafkaError;
use rdkafka::message::{BorrowedMessage, Headers as _, Message as _, Timestamp as KafkaTimestamp};

use super::consumer::list_with;
use super::quiet::Quiet;
use super::{ClientSettings, Error, client_config};
use crate::model::{Offset, Record, Timestamp, TimestampKind, TopicPartition};
use crate::plan;

/// What a partition gave.
#[derive(Debug)]
pub enum Received {
    /// A record.
    Record(Record),
    /// Everything that is there now has been read.
    End,
}

/// Reads one partition.
pub struct AssignedConsumer {
    consumer: StreamConsumer<Quiet>,
    at: TopicPartition,
}

impl AssignedConsumer {
    /// A client for `at` that reads nothing yet. Connects in the background.
    ///
    /// # Errors
    /// [`Error::Configuration`] when librdkafka refuses a property.
    pub fn new(
        kafka: &plan::Kafka,
        settings: &ClientSettings,
        at: TopicPartition,
    ) -> Result<AssignedConsumer, Error> {
        let mut config = client_config(kafka, settings);
        // Messages are taken one by one here, so that the client does not count the one at the end as a record.
        config.set("enable.partition.eof", "true");
        let consumer = config.create_with_context(Quiet::new(&config)).map_err(Error::configuration)?;
        Ok(AssignedConsumer { consumer, at })
    }

    /// Reads from `offset` on. What was fetched before is dropped.
    ///
    /// # Errors
    /// [`Error::Client`] when the client refuses.
    pub fn start_at(&self, offset: Offset) -> Result<(), Error> {
        // Two steps: assigning the same partition again would keep what is queued of it.
        self.consumer.unassign().map_err(Error::client)?;
        self.consumer.assign(&list_with([(&self.at, offset)])?).map_err(Error::client)
    }

    /// Waits for a record or the end. Cancel safe. After an error it has to be started again.
    ///
    /// # Errors
    /// [`Error::OutOfRange`] when the start lies outside the log, and whatever else keeps records from arriving.
    pub async fn receive(&self) -> Result<Received, Error> {
        match self.consumer.recv().await {
            Ok(message) => record(&message).map(Received::Record),
            Err(KafkaError::PartitionEOF(_)) => Ok(Received::End),
            Err(error) => Err(match error.rdkafka_error_code() {
                Some(code) => Error::of_code(&self.at, code, &error.to_string()),
                None => Error::client(error),
            }),
        }
    }
}

fn record(message: &BorrowedMessage<'_>) -> Result<Record, Error> {
    let offset = Offset::new(message.offset()).map_err(|e| Error::Client { reason: e.to_string() })?;
    let timestamp = |millis, kind| Some(Timestamp { millis, kind });
    let owned = |bytes: &[u8]| bytes::Bytes::copy_from_slice(bytes);
    let headers = message.headers().map(|headers| {
        headers.iter().map(|header| (header.key.to_owned(), header.value.map(<[u8]>::to_vec))).collect()
    });
    Ok(Record {
        offset,
        timestamp: match message.timestamp() {
            KafkaTimestamp::NotAvailable => None,
            KafkaTimestamp::CreateTime(millis) => timestamp(millis, TimestampKind::Create),
            KafkaTimestamp::LogAppendTime(millis) => timestamp(millis, TimestampKind::LogAppend),
        },
        key: message.key().map(owned),
        value: message.payload().map(owned),
        headers: headers.unwrap_or_default(),
    })
}
