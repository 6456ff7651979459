//! Topics, and records in them.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use rdkafka::ClientContext;
use rdkafka::admin::{AdminClient, AdminOptions, NewTopic, TopicReplication};
use rdkafka::client::DefaultClientContext;
use rdkafka::config::ClientConfig;
use rdkafka::consumer::{BaseConsumer, Consumer as _};
use rdkafka::error::{KafkaError, RDKafkaErrorCode};
use rdkafka::message::{DeliveryResult, Message as _};
use rdkafka::producer::{BaseProducer, BaseRecord, Producer as _, ProducerContext};
use rdkafka::topic_partition_list::{Offset, TopicPartitionList};

use super::{SOON, eventually, servers};

/// A topic.
#[derive(Debug, Clone)]
pub(crate) struct Topic {
    pub(crate) name: String,
    pub(crate) partitions: i32,
    /// Where its broker is.
    pub(crate) bootstrap: String,
}

fn admin(bootstrap: &str) -> AdminClient<DefaultClientContext> {
    ClientConfig::new().set("bootstrap.servers", bootstrap).create().expect("an admin client")
}

fn options() -> AdminOptions {
    AdminOptions::new().request_timeout(Some(SOON)).operation_timeout(Some(SOON))
}

impl Topic {
    /// Makes a topic at the test server.
    pub(crate) async fn create(name: &str, partitions: i32) -> Topic {
        Topic::create_at(&servers::kafka(), name, partitions).await
    }

    /// Makes a topic at another broker.
    pub(crate) async fn create_at(bootstrap: &str, name: &str, partitions: i32) -> Topic {
        let topic = Topic { name: name.to_owned(), partitions, bootstrap: bootstrap.to_owned() };
        let new = NewTopic::new(name, partitions, TopicReplication::Fixed(1));
        let made = admin(bootstrap).create_topics([&new], &options()).await;
        let made = made.unwrap_or_else(|error| panic!("topic {name} at {bootstrap}: {error}"));
        for result in made {
            result.unwrap_or_else(|(topic, code)| panic!("topic {topic}: {code}"));
        }
        eventually("the topic's leaders", SOON, async || topic.ends().map(drop).map_err(|e| e.to_string()))
            .await;
        topic
    }

    /// Offsets behind the last records, by partition.
    pub(crate) fn ends(&self) -> Result<Vec<i64>, KafkaError> {
        let consumer: BaseConsumer =
            ClientConfig::new().set("bootstrap.servers", &self.bootstrap).create()?;
        (0..self.partitions)
            .map(|n| consumer.fetch_watermarks(&self.name, n, Duration::from_secs(10)).map(|(_, high)| high))
            .collect()
    }

    /// What the broker holds as the offsets of `group`, by partition; -1 where there is none.
    pub(crate) fn group_offsets(&self, group: &str) -> Vec<i64> {
        let mut config = ClientConfig::new();
        config.set("bootstrap.servers", &self.bootstrap).set("group.id", group);
        let consumer: BaseConsumer = config.create().expect("a consumer");
        let mut list = TopicPartitionList::new();
        list.add_partition_range(&self.name, 0, self.partitions - 1);
        let committed = consumer.committed_offsets(list, SOON).unwrap_or_else(|e| panic!("{group}: {e}"));
        committed.elements().iter().map(|at| at.offset().to_raw().unwrap_or(-1)).collect()
    }

    /// Removes the records of a partition before `offset`, as retention would.
    pub(crate) async fn expire(&self, partition: i32, offset: i64) {
        let mut list = TopicPartitionList::new();
        list.add_partition_offset(&self.name, partition, Offset::Offset(offset)).expect("a list of one");
        let deleted = admin(&self.bootstrap).delete_records(&list, &options()).await;
        let deleted = deleted.unwrap_or_else(|error| panic!("{} [{partition}]: {error}", self.name));
        assert!(deleted.elements().iter().all(|at| at.error().is_ok()), "{deleted:?}");
    }

    /// Sends `values` in one transaction, which is committed or aborted.
    pub(crate) fn transact<V: AsRef<[u8]>>(&self, commit: bool, values: impl IntoIterator<Item = (i32, V)>) {
        let id = format!("{}-{:08x}", self.name, rand::random::<u32>());
        let sender = Sender::new(self, &[("transactional.id", &id)]);
        let done = |result: Result<(), KafkaError>| {
            result.unwrap_or_else(|e| panic!("{}: transaction: {e}", self.name))
        };
        done(sender.producer.init_transactions(SOON));
        done(sender.producer.begin_transaction());
        for (partition, value) in values {
            sender.send(partition, Some(value.as_ref()));
        }
        sender.finish();
        done(if commit {
            sender.producer.commit_transaction(SOON)
        } else {
            sender.producer.abort_transaction(SOON)
        });
    }

    /// Deletes the topic.
    pub(crate) async fn delete(&self) {
        let deleted = admin(&self.bootstrap).delete_topics(&[&self.name], &options()).await;
        for result in deleted.unwrap_or_else(|error| panic!("topic {}: {error}", self.name)) {
            result.unwrap_or_else(|(topic, code)| panic!("topic {topic}: {code}"));
        }
    }

    /// Sends one value to a partition and waits until the broker has it; its offset.
    pub(crate) fn send(&self, partition: i32, value: Option<&[u8]>) -> i64 {
        let sender = Sender::new(self, &[]);
        sender.send(partition, value);
        sender.finish();
        sender.last_offset()
    }

    /// Sends `values`, each with the partition that it goes to, and waits until the broker has them.
    pub(crate) fn send_all<V: AsRef<[u8]>>(&self, values: impl IntoIterator<Item = (i32, V)>) {
        let sender = Sender::new(self, &[]);
        for (partition, value) in values {
            sender.send(partition, Some(value.as_ref()));
        }
        sender.finish();
    }
}

/// Forgets a consumer group, if there is one.
pub(crate) async fn delete_group(group: &str) {
    // The last member may have been killed a moment ago, and counts until its session is over.
    eventually("the group to be empty", SOON, async || {
        let deleted = admin(&servers::kafka()).delete_groups(&[group], &options()).await;
        match deleted.map(|mut results| results.pop()) {
            Ok(Some(Err((_, RDKafkaErrorCode::NonEmptyGroup)))) => Err("it has members".to_owned()),
            Ok(Some(Err((_, RDKafkaErrorCode::GroupIdNotFound)))) | Ok(Some(Ok(_))) => Ok(()),
            Ok(other) => panic!("group {group}: {other:?}"),
            Err(error) => Err(error.to_string()),
        }
    })
    .await;
}

/// What the broker said about records.
#[derive(Default)]
struct Deliveries {
    failed: Mutex<Option<String>>,
    last_offset: Mutex<i64>,
}

impl ClientContext for Deliveries {}

impl ProducerContext for Deliveries {
    type DeliveryOpaque = ();

    fn delivery(&self, result: &DeliveryResult<'_>, (): ()) {
        match result {
            Ok(message) => {
                *self.last_offset.lock().unwrap_or_else(PoisonError::into_inner) = message.offset();
            }
            Err((error, _)) => {
                *self.failed.lock().unwrap_or_else(PoisonError::into_inner) = Some(error.to_string());
            }
        }
    }
}

/// Sends records to a topic.
pub(crate) struct Sender {
    topic: String,
    producer: BaseProducer<Deliveries>,
}

impl Sender {
    /// A sender with librdkafka's `properties`.
    pub(crate) fn new(topic: &Topic, properties: &[(&str, &str)]) -> Sender {
        let mut config = ClientConfig::new();
        config
            .set("bootstrap.servers", &topic.bootstrap)
            .set("linger.ms", "5")
            .set("enable.idempotence", "true");
        for (name, value) in properties {
            config.set(*name, *value);
        }
        let producer = config.create_with_context(Deliveries::default()).expect("a producer");
        Sender { topic: topic.name.clone(), producer }
    }

    /// Queues a record without a key.
    pub(crate) fn send(&self, partition: i32, value: Option<&[u8]>) {
        let mut record: BaseRecord<'_, (), [u8]> = BaseRecord::to(&self.topic).partition(partition);
        if let Some(value) = value {
            record = record.payload(value);
        }
        while let Err((error, back)) = self.producer.send(record) {
            let full = matches!(error, KafkaError::MessageProduction(RDKafkaErrorCode::QueueFull));
            assert!(full, "{}: {error}", self.topic);
            self.producer.poll(Duration::from_millis(20));
            record = back;
        }
    }

    /// Serves what the broker has answered.
    pub(crate) fn poll(&self) {
        self.producer.poll(Duration::ZERO);
    }

    /// Waits until the broker has everything.
    pub(crate) fn finish(&self) {
        self.producer.flush(2 * SOON).unwrap_or_else(|error| panic!("{}: {error}", self.topic));
        let failed = self.producer.context().failed.lock().unwrap_or_else(PoisonError::into_inner).clone();
        assert!(failed.is_none(), "{}: not delivered: {failed:?}", self.topic);
    }

    fn last_offset(&self) -> i64 {
        *self.producer.context().last_offset.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Records that are being sent at a steady pace by a thread, so that a connector is never at the end of its topic.
pub(crate) struct Stream {
    sent: Arc<AtomicU64>,
    thread: std::thread::JoinHandle<()>,
}

impl Stream {
    /// Sends `values` to `topic`, so many a second.
    pub(crate) fn start<I>(topic: &Topic, per_second: u64, values: I) -> Stream
    where
        I: IntoIterator<Item = (i32, Vec<u8>)> + Send + 'static,
    {
        let sender = Sender::new(topic, &[]);
        let sent = Arc::new(AtomicU64::new(0));
        let counter = sent.clone();
        let thread = std::thread::spawn(move || {
            let begun = Instant::now();
            for (number, (partition, value)) in (0_u64..).zip(values) {
                // Looked at every few records only: the pace is kept on average.
                if number.is_multiple_of(64) {
                    let due = begun + Duration::from_micros(number * 1_000_000 / per_second);
                    std::thread::sleep(due.saturating_duration_since(Instant::now()));
                    sender.poll();
                }
                sender.send(partition, Some(&value));
                counter.store(number + 1, Ordering::Relaxed);
            }
            sender.finish();
        });
        Stream { sent, thread }
    }

    /// Records handed to the client so far.
    pub(crate) fn sent(&self) -> u64 {
        self.sent.load(Ordering::Relaxed)
    }

    /// Whether there is more to come.
    pub(crate) fn goes_on(&self) -> bool {
        !self.thread.is_finished()
    }

    /// Waits until everything is sent.
    pub(crate) async fn finish(self) {
        let ended =
            tokio::task::spawn_blocking(move || self.thread.join()).await.expect("joining does not panic");
        ended.expect("everything is sent");
    }
}
