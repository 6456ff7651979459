//! What every feed does; Kafka's against the embedded broker.

use std::collections::BTreeMap;
use std::time::Duration;

use tokio::time::timeout;

use super::*;
use crate::kafka::embedded::{EmbeddedBroker, Producer};
use crate::model::Offset;
use crate::plan::{self, Start};

fn record(offset: i64, value: &str) -> Record {
    Record { offset: Offset::new(offset).unwrap(), value: Some(value.to_owned().into()), ..Record::default() }
}

async fn next(partition: &mut dyn FeedPartition) -> Option<String> {
    let next = timeout(Duration::from_secs(40), partition.next()).await.expect("something comes");
    next.unwrap().map(|record| {
        let value = String::from_utf8(record.value.unwrap().to_vec()).unwrap();
        format!("{}:{value}", record.offset)
    })
}

async fn rest(partition: &mut dyn FeedPartition) -> Vec<String> {
    let mut records = Vec::new();
    while let Some(record) = next(partition).await {
        records.push(record);
    }
    records
}

// Every feed with offset management whose first partition holds the values "0" to "9" at offsets 0 to 9 and ends.
async fn offsets_lead_back(feed: &dyn Feed) {
    let mut partitions = feed.partitions().await.unwrap();
    let partition = partitions[0].as_mut();
    assert_eq!(partition.id(), "0");
    assert!(partition.supports_offset_management());
    let beginning = partition.offset().unwrap();
    for n in 0..4 {
        assert_eq!(next(partition).await, Some(format!("{n}:{n}")));
    }
    let middle = partition.offset().unwrap();
    assert_eq!(rest(partition).await, ["4:4", "5:5", "6:6", "7:7", "8:8", "9:9"]);
    let end = partition.offset().unwrap();
    assert_eq!(next(partition).await, None, "the end stays the end");

    let mut elsewhere = feed.partitions().await.unwrap();
    for partition in [partition, elsewhere[0].as_mut()] {
        for (offset, first) in
            [(&middle, Some("4:4")), (&beginning, Some("0:0")), (&end, None), (&middle, Some("4:4"))]
        {
            partition.set_offset(offset).await.unwrap();
            assert_eq!(partition.offset().as_ref(), Some(offset));
            assert_eq!(next(partition).await.as_deref(), first);
        }
        assert!(matches!(partition.set_offset("earliest").await, Err(Error::BadOffset { .. })));
        assert_eq!(next(partition).await.as_deref(), Some("5:5"), "a bad offset moves nothing");
    }
}

#[tokio::test]
async fn a_feed_in_memory_is_led_by_offsets() {
    let ten = (0..10).map(|n| record(n, &n.to_string())).collect();
    offsets_lead_back(&MemoryFeed::new(vec![ten, Vec::new()])).await;
}

#[tokio::test]
async fn a_feed_in_memory_reads_over_holes() {
    let feed = MemoryFeed::new(vec![vec![record(3, "a"), record(9, "b")]]);
    let mut partitions = feed.partitions().await.unwrap();
    assert_eq!(rest(partitions[0].as_mut()).await, ["3:a", "9:b"]);
    partitions[0].set_offset("4").await.unwrap();
    assert_eq!(rest(partitions[0].as_mut()).await, ["9:b"]);
    assert_eq!(partitions[0].offset().as_deref(), Some("10"));
}

fn kafka(broker: &EmbeddedBroker) -> plan::Kafka {
    plan::Kafka {
        bootstrap_servers: broker.bootstrap_servers(),
        group_id: "unused".to_owned(),
        workers: 1,
        commit_group_offsets: false,
        properties: BTreeMap::new(),
    }
}

fn produce(broker: &EmbeddedBroker, topic: &str, partition: i32, values: std::ops::Range<i64>) {
    let producer = Producer::new(&broker.bootstrap_servers()).unwrap();
    for value in values {
        producer.send(topic, partition, b"key", value.to_string().as_bytes()).unwrap();
    }
    producer.flush(Duration::from_secs(20)).unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_kafka_feed_is_led_by_offsets() {
    let broker = EmbeddedBroker::start().unwrap();
    broker.create_topic("t", 2).unwrap();
    produce(&broker, "t", 0, 0..10);
    let feed = KafkaFeed::new(kafka(&broker), vec!["t".to_owned()], Start::Earliest).until_end();
    offsets_lead_back(&feed).await;
    let mut partitions = feed.partitions().await.unwrap();
    assert_eq!(partitions.iter().map(|p| p.id().to_owned()).collect::<Vec<_>>(), ["0", "1"]);
    assert!(rest(partitions[1].as_mut()).await.is_empty());
    let first = partitions[0].next().await.unwrap().unwrap();
    assert_eq!(first.key.as_deref(), Some(&b"key"[..]));
    assert!(first.timestamp.is_some());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_kafka_feed_waits_for_more_and_starts_where_it_is_told() {
    let broker = EmbeddedBroker::start().unwrap();
    for topic in ["t", "u"] {
        broker.create_topic(topic, 1).unwrap();
        produce(&broker, topic, 0, 0..10);
    }
    let feed = KafkaFeed::new(kafka(&broker), vec!["t".to_owned(), "u".to_owned()], Start::Latest);
    let mut partitions = feed.partitions().await.unwrap();
    assert_eq!(partitions.iter().map(|p| p.id().to_owned()).collect::<Vec<_>>(), ["t.0", "u.0"]);
    let last = partitions[1].as_mut();
    assert!(timeout(Duration::from_millis(300), last.next()).await.is_err(), "nothing is there yet");
    produce(&broker, "u", 0, 10..12);
    assert_eq!(next(last).await.as_deref(), Some("10:10"));
    assert_eq!(next(last).await.as_deref(), Some("11:11"));
    assert_eq!(last.offset().as_deref(), Some("12"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_position_outside_the_log_is_an_error_until_another_is_set() {
    let broker = EmbeddedBroker::start().unwrap();
    broker.create_topic("t", 1).unwrap();
    produce(&broker, "t", 0, 0..3);
    let feed = KafkaFeed::new(kafka(&broker), vec!["t".to_owned()], Start::Earliest);
    let mut partitions = feed.partitions().await.unwrap();
    let partition = partitions[0].as_mut();
    partition.set_offset("500").await.unwrap();
    for _ in 0..2 {
        let error = timeout(Duration::from_secs(40), partition.next()).await.unwrap().unwrap_err();
        assert_eq!(error.class(), Class::BadData, "{error:?}");
        assert_eq!(partition.offset().as_deref(), Some("500"));
    }
    partition.set_offset("1").await.unwrap();
    assert_eq!(next(partition).await.as_deref(), Some("1:1"));
}
