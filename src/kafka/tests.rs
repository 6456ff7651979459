//! The client against the embedded broker.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use super::embedded::{EmbeddedBroker, Producer};
use super::*;
use crate::model::{Offset, Secret, TopicPartition};
use crate::plan::{Kafka, Start};

fn plan(broker: &EmbeddedBroker, group: &str) -> Kafka {
    let properties = [("session.timeout.ms", "6000"), ("heartbeat.interval.ms", "500")];
    Kafka {
        bootstrap_servers: broker.bootstrap_servers(),
        group_id: group.to_owned(),
        workers: 1,
        commit_group_offsets: true,
        properties: BTreeMap::from(properties.map(|(key, value)| (key.to_owned(), Secret::new(value)))),
    }
}

fn config(kafka: &Kafka) -> rdkafka::ClientConfig {
    client_config(kafka, &ClientSettings { prefetch: 4 << 20, client_id: "test".to_owned() })
}

fn broker_with(topic: &str, partitions: i32, records: u64) -> EmbeddedBroker {
    let broker = EmbeddedBroker::start().unwrap();
    broker.create_topic(topic, partitions).unwrap();
    let producer = Producer::new(&broker.bootstrap_servers()).unwrap();
    for n in 0..records {
        let partition = (n % partitions as u64) as i32;
        producer.send(topic, partition, &n.to_be_bytes(), format!("value {n}").as_bytes()).unwrap();
    }
    producer.flush(Duration::from_secs(20)).unwrap();
    broker
}

fn until<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let deadline = Instant::now() + Duration::from_secs(40);
    while Instant::now() < deadline {
        if let Some(found) = look() {
            return found;
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    panic!("{what} did not happen");
}

#[test]
fn a_lane_reads_from_where_it_is_sent_and_only_there() {
    let broker = broker_with("t", 2, 1000);
    let kafka = plan(&broker, "g");
    let consumer = GroupConsumer::new(&config(&kafka), &["t"]).unwrap();
    let mut queue = consumer.lane_queue();
    let assigned = until("an assignment", || {
        consumer.poll().unwrap().into_iter().find_map(|event| match event {
            GroupEvent::Assigned(partitions) => Some(partitions),
            _ => None,
        })
    });
    assert_eq!(assigned.len(), 2);
    for partition in &assigned {
        queue.forward(&partition.topic, partition.partition);
    }
    consumer.take(&assigned).unwrap();

    // Paused until told where to start: nothing arrives.
    assert_eq!(queue.fill(10, Duration::from_millis(300)), 0);

    let start = |p: &TopicPartition| Offset::new(if p.partition == 0 { 490 } else { 0 }).unwrap();
    let positions: Vec<_> = assigned.iter().map(|p| (p.clone(), start(p))).collect();
    until("the start", || {
        consumer.poll().unwrap();
        consumer.start_at(&positions).iter().all(Result::is_ok).then_some(())
    });
    let mut seen: BTreeMap<i32, Vec<i64>> = BTreeMap::new();
    until("all records", || {
        assert!(consumer.poll().unwrap().is_empty(), "the main queue has events only, and none are due");
        queue.fill(100, Duration::from_millis(20));
        while let Some(polled) = queue.peek() {
            let partition = queue.peek_handle().unwrap().1;
            match polled {
                Polled::Record(record) => {
                    let number = record.offset.get() * 2 + i64::from(partition);
                    assert_eq!(record.value.unwrap(), format!("value {number}").as_bytes());
                    assert_eq!(record.key.unwrap(), number.to_be_bytes());
                    assert!(record.timestamp.is_some());
                    seen.entry(partition).or_default().push(record.offset.get());
                }
                Polled::Failed(code, text) => panic!("{code:?} {text}"),
            }
            assert_eq!(queue.peek_topic().as_deref(), Some("t"));
            queue.advance();
        }
        let count = |partition| seen.get(&partition).map_or(0, Vec::len);
        (count(0) >= 10 && count(1) >= 500).then_some(())
    });
    assert_eq!(seen[&0], (490..500).collect::<Vec<_>>());
    assert_eq!(seen[&1], (0..500).collect::<Vec<_>>());
    let positions: BTreeMap<_, _> =
        consumer.positions().into_iter().map(|(at, next)| (at.partition, next.get())).collect();
    assert_eq!(positions, BTreeMap::from([(0, 500), (1, 500)]));
    assert_eq!(queue.known_end("t", 0).unwrap().get(), 500);

    // A second start at an earlier offset after the end was reached: nothing is skipped.
    consumer.pause(&assigned[0]).unwrap();
    let back = [(assigned[0].clone(), Offset::new(499).unwrap())];
    until("the second start", || consumer.start_at(&back)[0].is_ok().then_some(()));
    until("the last record again", || {
        queue.fill(10, Duration::from_millis(20));
        let mut found = None;
        while let Some(polled) = queue.peek() {
            if let Polled::Record(record) = polled {
                found = Some(record.offset.get());
            }
            queue.advance();
        }
        found.filter(|offset| *offset == 499)
    });

    consumer.leave();
    until("the revoke", || {
        consumer.poll().unwrap().into_iter().find_map(|event| match event {
            GroupEvent::Revoked { partitions, .. } => consumer.release(&partitions).ok(),
            _ => None,
        })
    });
}

#[test]
fn look_ups_tell_ends_starts_and_missing_topics_apart() {
    let broker = broker_with("t", 3, 30);
    let kafka = plan(&broker, "g");
    let lookup = Lookup::new(&config(&kafka)).unwrap();
    assert_eq!(lookup.partitions("t").unwrap(), [0, 1, 2]);
    let at = TopicPartition { topic: "t".into(), partition: 1 };
    let watermarks = lookup.watermarks(&at).unwrap();
    assert_eq!((watermarks.first.get(), watermarks.next.get()), (0, 10));
    assert_eq!(lookup.resolve(&at, Start::Earliest).unwrap().get(), 0);
    assert_eq!(lookup.resolve(&at, Start::Latest).unwrap().get(), 10);
}

#[test]
fn a_property_that_librdkafka_refuses_is_named_and_its_value_is_not() {
    let broker = EmbeddedBroker::start().unwrap();
    let mut kafka = plan(&broker, "g");
    for key in ["sasl.passwort", "session.timeout.ms", "security.protocol"] {
        let before = kafka.properties.insert(key.to_owned(), Secret::new("hunter2"));
        let error = GroupConsumer::new(&config(&kafka), &["t"]).err().unwrap().to_string();
        assert!(error.contains(key), "{error}");
        assert!(!error.contains("hunter2"), "{error}");
        match before {
            Some(value) => kafka.properties.insert(key.to_owned(), value),
            None => kafka.properties.remove(key),
        };
    }
}
