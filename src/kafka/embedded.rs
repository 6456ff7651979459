//! A Kafka broker inside the process, for the quickstart and for tests: librdkafka's mock cluster.
//!
//! Owns: the broker, and a producer for it.
//! Does not own: durability; everything is lost with the value. It keeps at most 5 MiB a partition and forgets the
//! oldest batches beyond that, so whoever produces must not run further ahead of the reader.

use std::time::Duration;

use rdkafka::config::ClientConfig;
use rdkafka::error::{KafkaError, RDKafkaErrorCode};
use rdkafka::mocking::MockCluster;
use rdkafka::producer::{BaseProducer, BaseRecord, DefaultProducerContext, Producer as _};

use super::{Error, redact};

/// Bytes of stored batches that the broker keeps per partition.
pub const KEPT_PER_PARTITION: usize = 5 << 20;

/// A broker that lives as long as the value.
pub struct EmbeddedBroker {
    cluster: MockCluster<'static, DefaultProducerContext>,
}

impl EmbeddedBroker {
    /// Starts a broker on a free port of the loopback interface.
    ///
    /// # Errors
    /// [`Error::Unavailable`] when the port cannot be opened.
    pub fn start() -> Result<EmbeddedBroker, Error> {
        let cluster = MockCluster::new(1).map_err(unavailable)?;
        Ok(EmbeddedBroker { cluster })
    }

    /// `host:port` of the broker.
    pub fn bootstrap_servers(&self) -> String {
        self.cluster.bootstrap_servers()
    }

    /// Makes a topic.
    ///
    /// # Errors
    /// [`Error::Unavailable`] when the broker refuses.
    pub fn create_topic(&self, name: &str, partitions: i32) -> Result<(), Error> {
        self.cluster.create_topic(name, partitions, 1).map_err(unavailable)
    }
}

/// Sends records to a broker and waits for them to be stored.
pub struct Producer {
    producer: BaseProducer,
}

impl Producer {
    /// A producer for `bootstrap_servers`.
    ///
    /// # Errors
    /// [`Error::Configuration`] when librdkafka refuses a property.
    pub fn new(bootstrap_servers: &str) -> Result<Producer, Error> {
        let producer = ClientConfig::new()
            .set("bootstrap.servers", bootstrap_servers)
            .set("linger.ms", "5")
            .set("enable.idempotence", "true")
            .create()
            .map_err(Error::configuration)?;
        Ok(Producer { producer })
    }

    /// Queues a record; waits while the queue is full.
    ///
    /// # Errors
    /// [`Error::Unavailable`] when the broker refuses it.
    pub fn send(&self, topic: &str, partition: i32, key: &[u8], value: &[u8]) -> Result<(), Error> {
        let mut record = BaseRecord::to(topic).partition(partition).key(key).payload(value);
        loop {
            match self.producer.send(record) {
                Ok(()) => return Ok(()),
                Err((KafkaError::MessageProduction(RDKafkaErrorCode::QueueFull), back)) => {
                    self.producer.poll(Duration::from_millis(20));
                    record = back;
                }
                Err((error, _)) => return Err(unavailable(error)),
            }
        }
    }

    /// Waits until everything queued is stored.
    ///
    /// # Errors
    /// [`Error::Unavailable`] when it is not after `timeout`.
    pub fn flush(&self, timeout: Duration) -> Result<(), Error> {
        self.producer.flush(timeout).map_err(unavailable)
    }
}

fn unavailable(error: KafkaError) -> Error {
    Error::Unavailable { reason: redact(&error.to_string()) }
}
