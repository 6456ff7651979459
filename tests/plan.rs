//! What a plan may say, what it means, and what is said about one that cannot be.

#![allow(clippy::unwrap_used)]

use std::collections::BTreeSet;
use std::path::Path;
use std::time::{Duration, SystemTime};

use blobfeed::model::Secret;
use blobfeed::plan::{
    AzureCredential, Checksum, Codec, Faults, Loaded, OffsetStorage, Output, SHAPES, Start, Store, Syntax,
    load, load_text,
};
use serde_json::{Value, json};

fn base() -> Value {
    json!({
        "name": "p",
        "kafka": { "bootstrap_servers": "k:9092" },
        "schema_registry": { "url": "http://r:8081" },
        "store": {
            "type": "azure",
            "account": "account",
            "credential": { "type": "shared_key", "key": "a2V5" },
        },
        "offset_storage": { "type": "zookeeper", "connect": "z:2181" },
        "feeds": { "edits": { "topics": ["edits"], "container": "records" } },
    })
}

// Sets what stands at `place`, whose parts are separated by slashes; `null` takes it away.
fn set(plan: &mut Value, place: &str, value: Value) {
    let (parents, last) = place.rsplit_once('/').unwrap_or(("", place));
    let mut at = plan;
    for part in parents.split('/').filter(|part| !part.is_empty()) {
        at = at.as_object_mut().unwrap().entry(part).or_insert_with(|| json!({}));
    }
    if value.is_null() {
        at.as_object_mut().unwrap().remove(last);
    } else {
        at[last] = value;
    }
}

fn read_with(plan: &Value, env: &[(&str, &str)]) -> Result<Loaded, Faults> {
    let env = env.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
    load_text("plan.json", &plan.to_string(), Syntax::Json, Path::new("/plans"), env)
}

fn with(changes: &[(&str, Value)]) -> Result<Loaded, Faults> {
    let mut plan = base();
    for (place, value) in changes {
        set(&mut plan, place, value.clone());
    }
    read_with(&plan, &[])
}

fn good(changes: &[(&str, Value)]) -> Loaded {
    with(changes).unwrap_or_else(|faults| panic!("{changes:?}: {faults}"))
}

// The one change makes the one fault, whose text has `expected` in it.
fn check(place: &str, value: Value, expected: &str) {
    check_all(&[(place, value)], &[expected]);
}

fn check_all(changes: &[(&str, Value)], expected: &[&str]) {
    let faults = match with(changes) {
        Ok(_) => panic!("{changes:?}: no fault"),
        Err(faults) => faults,
    };
    assert_eq!(faults.faults.len(), expected.len(), "{changes:?}: {faults}");
    for (fault, expected) in faults.faults.iter().zip(expected) {
        assert!(fault.to_string().contains(expected), "{changes:?}: {fault}\nlacks {expected}");
    }
}

#[test]
fn a_short_plan_has_the_documented_defaults() {
    let plan = good(&[]).plan;
    assert_eq!(plan.kafka.group_id, "blobfeed-p");
    assert_eq!((plan.kafka.workers, plan.kafka.commit_group_offsets), (1, true));
    assert_eq!(plan.memory.budget, 512 << 20);
    assert_eq!(plan.http.unwrap().listen.to_string(), "127.0.0.1:9464");
    assert_eq!(plan.deadlines.revoke, Duration::from_secs(10));
    assert_eq!(plan.deadlines.shutdown, Duration::from_secs(25));
    let Store::Azure(azure) = plan.store else { panic!() };
    assert_eq!(azure.endpoint.as_str(), "https://account.blob.core.windows.net/");
    assert_eq!(azure.credential, AzureCredential::SharedKey(Secret::new("a2V5")));
    assert_eq!((azure.checksum, azure.create_container, azure.concurrency), (Checksum::Crc64, true, 16));
    let OffsetStorage::Zookeeper(zookeeper) = plan.offset_storage else { panic!() };
    assert_eq!(zookeeper.root, "/teknek/offset");
    let feed = &plan.feeds[0];
    assert_eq!(feed.start, Start::Earliest);
    assert_eq!(feed.format.output, Output::Avro(Codec::Zstandard(1)));
    assert_eq!(feed.target.example("edits", 7), "edits/partition-7/2026/01/31/23/59-58-5f0c2a9e.avro");
    assert_eq!(feed.flush.interval, Duration::from_secs(60));
    assert_eq!(feed.flush.max_block_size, 8 << 20);
    assert_eq!(feed.flush.max_blob_size, 256 << 20);
    assert_eq!(feed.flush.max_commit_size, 1 << 30);
    assert_eq!(feed.flush.max_blocks_per_blob, 50_000);
    assert_eq!(feed.flush.max_records_per_blob, None);
}

#[test]
fn what_is_missing_is_named() {
    check("name", Value::Null, "name: found nothing; expected the plan's name");
    for section in ["kafka", "schema_registry", "store", "offset_storage", "feeds"] {
        check(section, Value::Null, &format!("{section}: found nothing"));
    }
    for key in [
        "kafka/bootstrap_servers",
        "schema_registry/url",
        "store/type",
        "store/account",
        "store/credential",
        "store/credential/type",
        "store/credential/key",
        "offset_storage/type",
        "offset_storage/connect",
        "feeds/edits/topics",
        "feeds/edits/container",
    ] {
        check(key, Value::Null, &format!("{}: found nothing", key.replace('/', ".")));
    }
    check("feeds/edits", Value::Null, "feeds: found no feed");
}

#[test]
fn what_is_unknown_comes_with_a_guess() {
    check("nmae", json!("p"), "nmae: found an unknown key; expected one of name, kafka");
    check("flush/intervall", json!("5s"), "Did you mean `interval`?");
    check(
        "feeds/edits/flush/max_blob_sise",
        json!(1),
        "feeds.edits.flush.max_blob_sise: found an unknown key",
    );
    check("feeds/edits/topics_regex", json!("x"), "not available in this version");
    check("store/path", json!("x"), "belongs to type = \"directory\"");
    check("feeds/edits/interval", json!("5s"), "belongs into [flush]");
    check("store/credential/sas", json!("x"), "belongs to type = \"sas\"");
}

#[test]
fn all_faults_are_told_at_once_with_their_lines() {
    let text = r#"name = "a b"

[kafka]
bootstrap_servers = "k:9092"
workers = "many"
group = "g"
properties = { "group.id" = "x", "auto.offset.reset" = "latest" }

[schema_registry]
url = "registry"

[store]
type = "azure"
account = "Account"
credential = "text"

[offset_storage]
type = "kafka"

[flush]
interval = "0s"
max_block_size = 1

[memory]
budget = true

[http]
listen = "localhost:9464"

[feeds.edits]
topics = ["a/b"]
container = "records"
start = "yesterday"
format = { codec = "gzip" }
flush = { interval = 5 }

[feeds.other]
topics = ["x"]
"#;
    let faults = load_text("plan.toml", text, Syntax::Toml, Path::new(""), []).unwrap_err();
    let found: BTreeSet<(&str, Option<usize>)> =
        faults.faults.iter().map(|fault| (fault.path.as_str(), fault.line)).collect();
    let expected = [
        ("name", 1),
        ("kafka.workers", 5),
        ("kafka.group", 6),
        ("kafka.properties.\"group.id\"", 7),
        ("kafka.properties.\"auto.offset.reset\"", 7),
        ("schema_registry.url", 10),
        ("store.account", 14),
        ("store.credential", 15),
        ("offset_storage.type", 18),
        ("flush.interval", 21),
        ("flush.max_block_size", 22),
        ("memory.budget", 25),
        ("http.listen", 28),
        ("feeds.edits.topics", 31),
        ("feeds.edits.start", 33),
        ("feeds.edits.format.codec", 34),
        ("feeds.edits.flush.interval", 35),
        // Of what is missing, the line of the section that lacks it.
        ("feeds.other.container", 37),
    ];
    assert_eq!(found, expected.map(|(path, line)| (path, Some(line))).into_iter().collect(), "{faults}");
    assert_eq!(faults.faults.len(), expected.len(), "each once: {faults}");
    let json = serde_json::to_value(&faults).unwrap();
    assert_eq!(json["plan"], "plan.toml");
    assert_eq!(json["faults"][0]["path"], "name");
    assert_eq!(json["faults"][0]["line"], 1);
    for fault in &faults.faults {
        assert!(
            !fault.found.is_empty() && !fault.expected.is_empty() && !fault.remedy.is_empty(),
            "{fault:?}"
        );
    }
}

#[test]
fn yaml_and_json_say_the_same_as_toml() {
    let toml = r#"
        name = "p"
        [kafka]
        bootstrap_servers = "k:9092"
        [kafka.properties]
        "security.protocol" = "PLAINTEXT"
        sasl.mechanism = "PLAIN"
        [schema_registry]
        url = "http://r:8081"
        [store]
        type = "directory"
        path = "store"
        [offset_storage]
        type = "file"
        path = "/offsets"
        [flush]
        interval = "5s"
        [feeds.edits]
        topics = ["a", "b"]
        container = "records"
        start = 2026-01-31T00:00:00Z
        suffix = true
        flush.max_blob_size = "64MiB"
    "#;
    let yaml = r#"
name: p
kafka:
  bootstrap_servers: k:9092
  properties:
    security.protocol: PLAINTEXT
    sasl.mechanism: PLAIN
schema_registry: { url: "http://r:8081" }
store: { type: directory, path: store }
offset_storage: { type: file, path: /offsets }
flush: { interval: 5s }
feeds:
  edits:
    topics: [a, b]
    container: records
    start: 2026-01-31T00:00:00Z
    suffix: true
    flush: { max_blob_size: 64MiB }
"#;
    let json = json!({
        "name": "p",
        "kafka": {
            "bootstrap_servers": ["k:9092"],
            "properties": { "security.protocol": "PLAINTEXT", "sasl": { "mechanism": "PLAIN" } },
        },
        "schema_registry": { "url": "http://r:8081" },
        "store": { "type": "directory", "path": "store" },
        "offset_storage": { "type": "file", "path": "/offsets" },
        "flush": { "interval": "5s" },
        "feeds": { "edits": {
            "topics": ["a", "b"],
            "start": "2026-01-31T00:00:00Z",
            "target": { "container": "records", "suffix": "true" },
            "flush": { "max_blob_size": 67_108_864 },
        } },
    });
    let folder = tempfile::tempdir().unwrap();
    let read = |name: &str, text: &str| {
        let path = folder.path().join(name);
        std::fs::write(&path, text).unwrap();
        load(&path, []).unwrap_or_else(|faults| panic!("{faults}")).plan
    };
    let expected = read("plan.toml", toml);
    assert_eq!(read("plan.yaml", yaml), expected);
    assert_eq!(read("plan.yml", yaml), expected);
    assert_eq!(read("plan.json", &json.to_string()), expected);
    let Store::Directory(directory) = &expected.store else { panic!() };
    assert_eq!(directory.path, folder.path().join("store"), "relative paths start at the plan's folder");
    let Start::At(start) = expected.feeds[0].start else { panic!() };
    assert_eq!(start, SystemTime::UNIX_EPOCH + Duration::from_secs(1_769_817_600));
}

#[test]
fn files_that_cannot_be_plans_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let check = |name: &str, content: Option<&[u8]>, expected: &str| {
        let path = folder.path().join(name);
        if let Some(content) = content {
            std::fs::write(&path, content).unwrap();
        }
        let text = load(&path, []).unwrap_err().to_string();
        assert!(text.contains(expected), "{text}");
    };
    check("absent.toml", None, "the file: found a file that cannot be read (entity not found)");
    check("plan.ini", Some(b"x"), "without a known extension");
    check("binary.toml", Some(&[0xff]), "cannot be read");
    check("list.json", Some(b"[]"), "no Json");
    check(
        "twice.json",
        Some(b"{\"flush\": {\"a\": 1, \"a\": 2}}"),
        "flush.a: found a key that is there twice",
    );
    check("twice.yaml", Some(b"a: 1\na: 2\n"), "no Yaml");
    check("broken.toml", Some(b"name = \n"), "the file (line 1): found text that is no TOML");
    check("twice.toml", Some(b"name = 'a'\nname = 'b'\n"), "the file (line 2): found text that is no TOML");
    check("empty.toml", Some(b""), "name: found nothing");
    check("empty.yaml", Some(b"# nothing\n"), "name: found nothing");
}

#[test]
fn the_environment_wins_over_the_file() {
    let mut plan = base();
    set(&mut plan, "flush/interval", json!("1m"));
    let env = [
        ("BLOBFEED__FLUSH__INTERVAL", "7s"),
        ("BLOBFEED__KAFKA__WORKERS", "2"),
        ("BLOBFEED__KAFKA__COMMIT_GROUP_OFFSETS", "false"),
        ("BLOBFEED__KAFKA__PROPERTIES__SASL_PASSWORD", "${env:PW}"),
        ("BLOBFEED__FEEDS__EDITS__TOPICS", "a, b"),
        ("BLOBFEED__feeds__Edits__Flush__Max_Blob_Size", "32MiB"),
        ("BLOBFEED__HTTP__LISTEN", ""),
        ("BLOBFEED_TEST_KAFKA", "not ours"),
        ("PW", "hunter2"),
    ];
    let plan = read_with(&plan, &env).unwrap().plan;
    assert_eq!((plan.kafka.workers, plan.kafka.commit_group_offsets), (2, false));
    assert_eq!(plan.kafka.properties["sasl.password"].expose(), "hunter2");
    assert_eq!(plan.http, None);
    assert_eq!(plan.feeds[0].topics.iter().map(|t| &**t).collect::<Vec<_>>(), ["a", "b"]);
    assert_eq!(plan.feeds[0].flush.interval, Duration::from_secs(7));
    assert_eq!(plan.feeds[0].flush.max_blob_size, 32 << 20);
}

#[test]
fn faults_of_variables_name_the_variable() {
    let check = |name: &str, value: &str, expected: &str| {
        let faults = read_with(&base(), &[(name, value)]).unwrap_err();
        assert_eq!(faults.faults.len(), 1, "{faults}");
        assert!(faults.to_string().contains(expected), "{faults}");
    };
    check("BLOBFEED__KAFKA__WORKERS", "0", "kafka.workers (variable BLOBFEED__KAFKA__WORKERS): found \"0\"");
    check(
        "BLOBFEED__KAFKA__WORKER",
        "1",
        "kafka.worker (variable BLOBFEED__KAFKA__WORKER): found an unknown key",
    );
    check("BLOBFEED__FEEDS__EDIT__START", "latest", "expected one of edits");
    check("BLOBFEED__FLUSH", "5s", "flush (variable BLOBFEED__FLUSH): found text; expected a table");
    check("BLOBFEED__NAME__X", "5s", "a key below name, which is text");
}

#[test]
fn a_feed_wins_key_by_key() {
    let loaded = good(&[
        ("flush", json!({ "interval": "30s", "max_blob_size": "64MiB" })),
        ("format", json!({ "codec": "zstandard", "level": 15 })),
        ("target", json!({ "container": "shared", "stream": "s/{topic}", "suffix": false })),
        ("feeds/a", json!({ "topics": ["a"] })),
        (
            "feeds/b",
            json!({
                "topics": ["b"],
                "container": "own",
                "target": { "partition": "" },
                "flush": { "interval": "5s" },
                "format": { "codec": "deflate" },
            }),
        ),
    ]);
    let [a, b, edits] = loaded.plan.feeds.as_slice() else { panic!() };
    assert_eq!(a.flush.interval, Duration::from_secs(30));
    assert_eq!(
        (&*a.target.container, a.target.stream.as_str(), a.target.suffix),
        ("shared", "s/{topic}", false)
    );
    assert_eq!(a.format.output, Output::Avro(Codec::Zstandard(15)));
    assert_eq!((b.flush.interval, b.flush.max_blob_size), (Duration::from_secs(5), 64 << 20));
    assert_eq!(
        (&*b.target.container, b.target.stream.as_str(), b.target.suffix),
        ("own", "s/{topic}", false)
    );
    assert_eq!(b.target.partition.as_str(), "");
    assert_eq!(b.format.output, Output::Avro(Codec::Deflate(6)), "another codec does not inherit the level");
    assert_eq!(&*edits.target.container, "records");
}

#[test]
fn a_fault_that_feeds_inherit_is_told_once_where_it_stands() {
    check_all(
        &[("flush/interval", json!("1ms")), ("feeds/a", json!({ "topics": ["a"], "container": "records" }))],
        &["flush.interval: found \"1ms\"; expected a duration from 100ms to 1d"],
    );
    // No feed uses it; it is a fault all the same.
    check_all(
        &[("flush/interval", json!("1ms")), ("feeds/edits/flush/interval", json!("5s"))],
        &["flush.interval: found \"1ms\""],
    );
    check_all(
        &[
            ("target/suffix", json!(false)),
            ("feeds/edits/suffix", json!(true)),
            ("feeds/edits/target/suffix", json!(true)),
        ],
        &["feeds.edits.suffix: found a second value beside feeds.edits.target.suffix"],
    );
}

#[test]
fn sizes_durations_and_numbers_have_bounds() {
    for value in [
        json!("0s"),
        json!("-1s"),
        json!("99ms"),
        json!("2d"),
        json!(60),
        json!("60"),
        json!(1.5),
        json!("x"),
    ] {
        check("flush/interval", value, "flush.interval: found");
    }
    for value in
        [json!(0), json!(-1), json!("63KiB"), json!("101MiB"), json!("1.5MiB"), json!("8M"), json!(1e300)]
    {
        check("flush/max_block_size", value, "flush.max_block_size: found");
    }
    check("flush/max_block_size", json!("99999999999999999999"), "flush.max_block_size: found");
    check("flush/max_blob_size", json!("4MiB"), "4194304 bytes, less than max_block_size (8388608 bytes)");
    check("feeds/edits/flush/max_commit_size", json!("1MiB"), "feeds.edits.flush.max_commit_size: found");
    check("flush/max_blocks_per_blob", json!(50_001), "from 1 to 50000");
    check("flush/max_records_per_blob", json!(0), "at least 1, or \"unlimited\"");
    check("flush/max_open_blobs", json!(0), "flush.max_open_blobs");
    check("kafka/workers", json!(0), "from 1 to 64");
    check("kafka/workers", json!("1.0"), "from 1 to 64");
    check("store/concurrency", json!(0), "from 1 to 256");
    check("store/request_timeout", json!("1ms"), "from 1s to 10m");
    check("offset_storage/session_timeout", json!("1h"), "from 1s to 5m");
    check("schema_registry/timeout", json!("0s"), "from 100ms to 5m");
    check("deadlines/shutdown", json!("0s"), "deadlines.shutdown");
    check("format/level", json!(20), "from 1 to 19");
    check_all(&[("format", json!({ "codec": "deflate", "level": 10 }))], &["from 1 to 9"]);
    check_all(
        &[("format", json!({ "codec": "snappy", "level": 1 }))],
        &["format.level: found a level; expected none"],
    );
    let feed =
        &good(&[("flush/max_block_size", json!("64KiB")), ("flush/max_records_per_blob", json!("100"))])
            .plan
            .feeds[0];
    assert_eq!((feed.flush.max_block_size, feed.flush.max_records_per_blob), (64 << 10, Some(100)));
}

#[test]
fn the_memory_minimum_is_demanded() {
    assert_eq!(good(&[]).plan.memory_minimum(), 23 << 20);
    check("memory/budget", json!("22MiB"), "memory.budget: found 22MiB; expected at least 23MiB");
    good(&[("memory/budget", json!("23MiB"))]);
    good(&[("memory/budget", json!("8MiB")), ("flush/max_block_size", json!("1MiB"))]);
    check_all(
        &[("memory/budget", json!("64MiB")), ("kafka/workers", json!(4))],
        &["for 4 worker(s) that fill one block of 8MiB"],
    );
    // The largest block of any feed counts.
    check_all(
        &[("memory/budget", json!("64MiB")), ("feeds/edits/flush/max_block_size", json!("64MiB"))],
        &["one block of 64MiB"],
    );
}

#[test]
fn what_comes_later_is_said_to() {
    check("delivery/mode", json!("exactly_once"), "With at_least_once no record is lost; a crash");
    check("format/input", json!("json"), "It is not available in this version; use avro.");
    check("format/output", json!("parquet"), "It is not available in this version; use avro.");
    check("format/on_bad_record", json!("dead_letter"), "It is not available in this version; use fail.");
    check("store/credential", json!({ "type": "managed_identity" }), "use shared_key or sas");
    check(
        "store/credential",
        json!({ "type": "connection_string", "connection_string": "x" }),
        "use shared_key or sas",
    );
    check("offset_storage/type", json!("blob"), "use zookeeper or file or memory");
    check("target/layout", json!("confluent"), "use samza");
    check("format/codec", json!("zstandart"), "Did you mean \"zstandard\"?");
}

#[test]
fn properties_that_are_ours_are_refused_with_a_pointer() {
    for (name, pointer) in [
        ("group.id", "kafka.group_id"),
        ("bootstrap.servers", "kafka.bootstrap_servers"),
        ("enable.auto.commit", "kafka.commit_group_offsets"),
        ("enable.auto.offset.store", "Remove it"),
        ("auto.offset.reset", "feeds.<name>.start"),
        ("enable.partition.eof", "Remove it"),
        ("queued.max.messages.kbytes", "memory.budget"),
        ("rebalance_cb", "a callback"),
        ("Security Protocol", "Correct the name"),
    ] {
        check(&format!("kafka/properties/{name}"), json!("x"), pointer);
    }
    check("kafka/properties/group", json!({ "id": "x" }), "kafka.properties.group.id: found a property");
    check("kafka/properties/partition.assignment.strategy", json!("range"), "cooperative-sticky");
    check("kafka/properties/max.poll.interval.ms", json!("5m"), "milliseconds");
    check("kafka/properties/sasl.password", json!(["x"]), "found a list");
    check("kafka/properties", json!({ "a.b": "1", "a": { "b": "2" } }), "the same property as");
    check_all(
        &[("kafka/properties/group.instance.id", json!("x")), ("kafka/workers", json!(2))],
        &["one id for 2 members"],
    );
    check(
        "kafka/properties",
        json!({ "group.protocol": "consumer", "partition.assignment.strategy": "cooperative-sticky" }),
        "brokers assign",
    );
    good(&[("kafka/properties/group.protocol", json!("consumer"))]);
    let kafka = good(&[
        ("kafka/properties", json!({ "max.poll.interval.ms": 60_000, "socket.keepalive.enable": true })),
        ("kafka/properties/partition.assignment.strategy", json!("cooperative-sticky")),
    ])
    .plan
    .kafka;
    assert_eq!(kafka.properties["max.poll.interval.ms"].expose(), "60000");
    assert_eq!(kafka.properties["socket.keepalive.enable"].expose(), "true");
}

#[test]
fn deadlines_fit_the_group() {
    check(
        "deadlines/revoke",
        json!("5m"),
        "deadlines.revoke: found 5m; expected less than max.poll.interval.ms (5m)",
    );
    check("kafka/properties/max.poll.interval.ms", json!("10000"), "less than max.poll.interval.ms (10s)");
    let notes = good(&[("deadlines/shutdown", json!("1m"))]).notes;
    assert!(notes[0].text.contains("Kubernetes"), "{notes:?}");
}

#[test]
fn addresses_are_checked() {
    for value in [json!(""), json!("k:"), json!("k:x"), json!("k 1:1"), json!("a:1,,b:2"), json!([])] {
        check("kafka/bootstrap_servers", value, "kafka.bootstrap_servers: found");
    }
    assert_eq!(
        good(&[("kafka/bootstrap_servers", json!(["a:1", "b:2"]))]).plan.kafka.bootstrap_servers,
        "a:1,b:2"
    );
    good(&[("kafka/bootstrap_servers", json!("SASL_SSL://[::1]:9093, b"))]);
    for value in [json!("z"), json!("z:2181/"), json!("zk://z:2181"), json!("z:2181;y:2181")] {
        check("offset_storage/connect", value, "offset_storage.connect: found");
    }
    for value in [json!("offset"), json!("/"), json!("/a//b"), json!("/zookeeper/x")] {
        check("offset_storage/root", value, "offset_storage.root: found");
    }
    for value in [json!("localhost:8081"), json!("ftp://r"), json!("http://r?x=1")] {
        check("schema_registry/url", value, "schema_registry.url: found");
    }
    check("schema_registry/url", json!("http://user:pw@r:8081"), "Put user and password into `username`");
    let registry =
        good(&[("schema_registry/url", json!("http://a:1/, https://b/apis/v7"))]).plan.schema_registry;
    assert_eq!(registry.unwrap().urls, ["http://a:1", "https://b/apis/v7"]);
    check("http/listen", json!("localhost:9464"), "host names are not looked up");
    check("http/listen", json!(9464), "http.listen: found 9464");
    let notes = good(&[("http/listen", json!("0.0.0.0:9464"))]).notes;
    assert!(notes[0].text.contains("0.0.0.0:9464"), "{notes:?}");
}

#[test]
fn secrets_stay_off_open_networks() {
    check_all(
        &[("store/endpoint", json!("http://azurite:10000/account"))],
        &["store.endpoint: found \"http://azurite:10000/account\"; expected https"],
    );
    good(&[("store/endpoint", json!("http://127.0.0.1:10000/account"))]);
    good(&[("store/endpoint", json!("http://localhost:10000/account"))]);
    let allowed =
        good(&[("store/endpoint", json!("http://azurite:10000/account")), ("store/allow_http", json!(true))]);
    assert!(allowed.notes.iter().any(|note| note.text.contains("unencrypted")), "{:?}", allowed.notes);
    assert!(matches!(allowed.plan.store, Store::Azure(azure) if azure.allow_http));
    let user = [("schema_registry/username", json!("u")), ("schema_registry/password", json!("pw"))];
    check_all(&user, &["schema_registry.url: found \"http://r:8081\"; expected https"]);
    let mut changes = user.to_vec();
    changes.push(("schema_registry/url", json!("https://r")));
    let basic = good(&changes).plan.schema_registry.unwrap().basic;
    assert_eq!(basic, Some(("u".to_owned(), Secret::new("pw"))));
    let registry = |key: &str| ("schema_registry", json!({ "url": "https://r", key: "x" }));
    check_all(&[registry("username")], &["schema_registry.password: found nothing"]);
    check_all(&[registry("password")], &["schema_registry.username: found nothing"]);
}

#[test]
fn account_and_endpoint_agree() {
    let account = |changes: &[(&str, Value)]| match good(changes).plan.store {
        Store::Azure(azure) => (azure.account, azure.endpoint.to_string(), azure.checksum),
        _ => panic!(),
    };
    let endpoint = |url: &str| ("store/endpoint", json!(url));
    let no_account = ("store/account", Value::Null);
    assert_eq!(
        account(&[("store/account", json!("devstoreaccount1"))]),
        ("devstoreaccount1".into(), "http://127.0.0.1:10000/devstoreaccount1".into(), Checksum::Md5),
    );
    assert_eq!(
        account(&[no_account.clone(), endpoint("http://127.0.0.1:10000/devstoreaccount1/")]),
        ("devstoreaccount1".into(), "http://127.0.0.1:10000/devstoreaccount1".into(), Checksum::Md5),
    );
    assert_eq!(
        account(&[no_account.clone(), endpoint("https://other.blob.core.chinacloudapi.cn")]).0,
        "other"
    );
    assert_eq!(
        account(&[no_account.clone(), endpoint("https://other.privatelink.blob.core.windows.net")]).0,
        "other"
    );
    assert_eq!(account(&[endpoint("https://blobs.example.org")]).0, "account");
    check_all(&[endpoint("https://other.blob.core.windows.net")], &["which is of another account"]);
    check_all(&[endpoint("http://127.0.0.1:10000/other")], &["which is of another account"]);
    check_all(&[endpoint("http://127.0.0.1:10000")], &["append /account"]);
    check_all(&[endpoint("https://azurite:10000")], &["append /account"]);
    check_all(
        &[endpoint("https://account.blob.core.windows.net/account/container")],
        &["Leave the container out"],
    );
    check_all(&[no_account, endpoint("https://blobs.example.org")], &["Add account"]);
    check_all(
        &[endpoint("https://account.blob.core.windows.net?sv=1&sig=x")],
        &["Put a SAS into credential"],
    );
    check("store/account", json!("My-Account"), "store.account: found \"My-Account\"");
    let notes =
        good(&[("store/account", json!("devstoreaccount1")), ("store/checksum", json!("crc64"))]).notes;
    assert!(notes.iter().any(|note| note.text.contains("Azurite answers crc64")), "{notes:?}");
}

#[test]
fn credentials_are_checked_by_form() {
    check("store/credential/key", json!("not base64!"), "text that is no base64");
    check("store/credential/key", json!(""), "found empty text");
    check("store/credential", json!("key"), "store.credential: found text; expected a table");
    let sas = |text: &str| json!({ "type": "sas", "sas": text });
    for text in ["sv=1", "https://a.blob.core.windows.net/?sv=1&sig=x", "sv=1&sig=x\n"] {
        check("store/credential", sas(text), "text that is no SAS");
    }
    for text in ["sv=1&sig=x", "?sv=1&sig=x"] {
        good(&[("store/credential", sas(text))]);
    }
}

#[test]
fn secrets_come_from_variables_and_files() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("key"), "a2V5\n").unwrap();
    let mut plan = base();
    set(&mut plan, "store/credential/key", json!("${file:key}"));
    set(&mut plan, "kafka/properties/sasl.jaas.config", json!("password=\"${env:PW}\";"));
    let path = folder.path().join("plan.json");
    std::fs::write(&path, plan.to_string()).unwrap();
    let loaded = load(&path, [("PW".to_owned(), "hunter2".to_owned())]).unwrap();
    let Store::Azure(azure) = loaded.plan.store else { panic!() };
    assert_eq!(azure.credential, AzureCredential::SharedKey(Secret::new("a2V5")));
    assert_eq!(loaded.plan.kafka.properties["sasl.jaas.config"].expose(), "password=\"hunter2\";");
    check("store/credential/key", json!("${env:ABSENT}"), "store.credential.key: found `${env:ABSENT}`");
    check(
        "store/credential/key",
        json!("${file:absent}"),
        "`${file:absent}`, which cannot be read: entity not found",
    );
    check("store/credential/key", json!("${ABSENT}"), "of an unknown kind");
    check("name", json!("${env:ABSENT}"), "name: found `${env:ABSENT}`");
}

#[test]
fn names_are_checked() {
    for value in ["", "a b", "a/b", "ä"] {
        check("name", json!(value), "name: found");
    }
    for value in ["x y", "ä", "..", &"x".repeat(65)] {
        check(
            &format!("feeds/{value}"),
            json!({ "topics": ["t"], "container": "records" }),
            "cannot be a feed's",
        );
    }
    for value in [
        json!([]),
        json!(""),
        json!(["a", ""]),
        json!([1]),
        json!(1),
        json!(["a b"]),
        json!(["."]),
        json!("a,,b"),
    ] {
        check("feeds/edits/topics", value, "feeds.edits.topics: found");
    }
    check("feeds/edits/topics", json!(["a", "b", "a"]), "found \"a\" twice");
    check(
        "feeds/other",
        json!({ "topics": ["edits"], "container": "records" }),
        "\"edits\", which feed \"edits\" has too",
    );
    for value in ["ab", "Records", "a_b", "-ab", "a--b"] {
        check("feeds/edits/container", json!(value), "feeds.edits.container: found");
    }
    for value in ["", "/a", "a/", "{topic", "{offset}", "a}", "_blobfeed/x"] {
        check("feeds/edits/stream", json!(value), "feeds.edits.stream: found");
    }
    for value in ["a//b", "a/../b", "a/%2e/b", "a./b", "a\\b", &"x".repeat(1020)] {
        check("feeds/edits/stream", json!(value), "a name for topic \"edits\" that no blob may have");
    }
    check("feeds/edits/partition", json!("a/{partition}"), "Put what has slashes into `stream`");
    check("feeds/edits/topics", json!(["a."]), "a segment ends with a dot");
    for value in ["never", "2026-01-31", "2026-01-31T00:00:00", "1969-12-31T23:59:59Z", ""] {
        check("feeds/edits/start", json!(value), "feeds.edits.start: found");
    }
}

#[test]
fn feeds_whose_names_could_meet_are_refused() {
    let other = |stream: &str, container: &str| {
        (
            "feeds/other",
            json!({ "topics": ["other"], "container": container, "stream": stream, "suffix": false }),
        )
    };
    let stream = ("feeds/edits/stream", json!("s"));
    let plain = ("feeds/edits/suffix", json!(false));
    check_all(
        &[stream.clone(), plain.clone(), other("s", "records")],
        &[
            "feeds.other.stream: found names that could meet: topic \"edits\" of feed \"edits\" and topic \"other\"",
        ],
    );
    check_all(
        &[("feeds/edits/stream", json!("other")), plain.clone(), other("{topic}", "records")],
        &["could meet"],
    );
    good(&[stream.clone(), plain.clone(), other("t", "records")]);
    good(&[stream.clone(), plain.clone(), other("s", "elsewhere")]);
    let notes = good(&[stream.clone(), other("s", "records")]).notes;
    assert!(notes.iter().any(|note| note.text.contains("share a prefix")), "{notes:?}");
    // Topics of one feed.
    let two = ("feeds/edits/topics", json!(["a", "b"]));
    check_all(
        &[two.clone(), stream.clone(), plain.clone()],
        &["feeds.edits.stream: found names that could meet"],
    );
    good(&[two.clone(), plain.clone()]);
    good(&[two, stream.clone(), plain.clone(), ("feeds/edits/partition", json!("{topic}-{partition}"))]);
    // Partitions of one topic.
    let notes = good(&[plain, stream, ("feeds/edits/partition", json!(""))]).notes;
    assert!(notes[0].text.contains("next free second"), "{notes:?}");
}

// Each place of the plan, with the base that has its section.
fn places() -> Vec<(Value, String)> {
    let mut places = Vec::new();
    for shape in SHAPES {
        let mut plan = base();
        match (shape.section, shape.variant) {
            ("store", "directory") => plan["store"] = json!({ "type": "directory", "path": "x" }),
            ("store.credential", "sas") => {
                plan["store"]["credential"] = json!({ "type": "sas", "sas": "sig=x" })
            }
            ("offset_storage", "file") => plan["offset_storage"] = json!({ "type": "file", "path": "x" }),
            (section @ ("store" | "offset_storage"), "memory") => plan[section] = json!({ "type": "memory" }),
            _ => {}
        }
        let section = shape.section.replace("feeds.*", "feeds.edits").replace('.', "/");
        for key in shape.keys {
            places.push((plan.clone(), format!("{section}/{key}").trim_start_matches('/').to_owned()));
        }
    }
    for shared in ["flush", "delivery", "format", "target"] {
        let shape = SHAPES.iter().find(|shape| shape.section == shared).unwrap();
        let mut plan = base();
        if shared == "target" {
            plan["feeds"]["edits"] = json!({ "topics": ["edits"], "target": { "container": "records" } });
        }
        places.extend(shape.keys.iter().map(|key| (plan.clone(), format!("feeds/edits/{shared}/{key}"))));
    }
    places
}

#[test]
fn every_listed_key_is_read() {
    for (mut plan, place) in places() {
        set(&mut plan, &place, json!([[1]]));
        let faults = read_with(&plan, &[]).expect_err(&place);
        let path = place.replace('/', ".");
        let fault = faults
            .faults
            .iter()
            .find(|fault| fault.path == path)
            .unwrap_or_else(|| panic!("{path}: {faults}"));
        assert_ne!(fault.found, "an unknown key", "{fault}");
    }
}

// Whatever is said about a plan, and whatever a log could hold of it.
fn all_outputs(result: &Result<Loaded, Faults>) -> String {
    match result {
        Err(faults) => format!("{faults} {faults:?} {}", serde_json::to_string(faults).unwrap()),
        Ok(loaded) => {
            let summary = loaded.summary();
            format!("{loaded:?} {summary} {summary:?} {}", serde_json::to_string(&summary).unwrap())
        }
    }
}

#[test]
fn no_fault_shows_what_came_from_the_environment() {
    for canary in
        ["canary", "Canary canary", "http://u:canary@h/?sig=canary", &format!("{}canary", "x".repeat(90))]
    {
        for (mut plan, place) in places() {
            set(&mut plan, &place, json!("${env:CANARY}"));
            if let Err(faults) = read_with(&plan, &[("CANARY", canary)]) {
                let text = all_outputs(&Err(faults));
                assert!(!text.contains("canary"), "{place}: {text}");
            }
        }
    }
}

#[test]
fn keys_that_hold_secrets_never_show_them() {
    let check = |changes: &[(&str, Value)], env: &[(&str, &str)]| {
        let mut plan = base();
        changes.iter().for_each(|(place, value)| set(&mut plan, place, value.clone()));
        let text = all_outputs(&read_with(&plan, env));
        assert!(!text.contains("canary"), "{changes:?} {env:?}: {text}");
    };
    let places = [
        "store/credential",
        "store/credential/key",
        "store/credential/sas",
        "schema_registry/password",
        "kafka/properties/sasl.password",
        "kafka/properties/partition.assignment.strategy",
        "kafka/properties/max.poll.interval.ms",
        "kafka/properties/group.id",
        "kafka/properties/Bad Name",
        "kafka/properties",
        "unknown",
    ];
    let values = [
        json!("canary"),
        json!(["canary"]),
        json!([["canary"]]),
        json!({ "x": "canary" }),
        json!("canary\u{0}"),
    ];
    for place in places {
        for value in &values {
            check(&[(place, value.clone())], &[]);
        }
    }
    check(&[("store/credential", json!({ "type": "sas", "sas": "sv=1&sig=canary" }))], &[]);
    check(&[("store/credential", json!({ "type": "sas", "sas": "sv=1 sig=canary" }))], &[]);
    check(&[("store/endpoint", json!("https://account.blob.core.windows.net/?sig=canary"))], &[]);
    check(&[("store/endpoint", json!("https://u:canary@account.blob.core.windows.net"))], &[]);
    check(&[("store/endpoint", json!("u:canary@account"))], &[]);
    check(&[("schema_registry/url", json!("http://u:canary@r"))], &[]);
    check(&[("schema_registry/username", json!("u")), ("schema_registry/password", json!("canary"))], &[]);
    check(
        &[
            ("schema_registry", json!({ "url": "https://r", "username": "u", "password": "canary" })),
            ("kafka/properties", json!({ "sasl.password": "canary", "ssl.key.password": "${env:CANARY}" })),
            ("store/credential/key", json!("canarycanary")),
        ],
        &[("CANARY", "canary")],
    );
    check(&[], &[("BLOBFEED__STORE__CREDENTIAL__KEY", "canary")]);
    check(&[], &[("BLOBFEED__STORE__CREDENTIAL", "canary")]);
    check(&[], &[("BLOBFEED__KAFKA__PROPERTIES__SASL_PASSWORD", "canary")]);
}

#[test]
fn the_summary_says_what_will_happen() {
    let loaded = good(&[
        ("feeds/edits/topics", json!(["a", "b"])),
        ("kafka/properties/sasl.password", json!("pw")),
        ("http/listen", json!("0.0.0.0:1")),
        ("flush/interval", json!("30s")),
    ]);
    let summary = loaded.summary();
    let text = summary.to_string();
    for expected in [
        "kafka      k:9092, group blobfeed-p, 1 worker(s)",
        "with sasl.password",
        "azure, account account at https://account.blob.core.windows.net/, by shared key",
        "zookeeper z:2181 at /teknek/offset",
        "512MiB; this plan needs at least 23MiB",
        "topic    a -> records/a/partition-0/2026/01/31/23/59-58-5f0c2a9e.avro",
        "topic    b -> records/b/partition-0/",
        "at_least_once: nothing is lost",
        "each 30s, or at 1GiB a commit",
        "5760 a day",
        "note: http.listen:",
    ] {
        assert!(text.contains(expected), "{expected:?} is not in\n{text}");
    }
    let json = serde_json::to_value(&summary).unwrap();
    assert_eq!(json["feeds"][0]["topics"], json!(["a", "b"]));
    assert_eq!(json["feeds"][0]["requests_per_partition_and_day"], 5760);
    assert_eq!(json["memory_minimum"], 23 << 20);
    assert_eq!(json["notes"][0]["path"], "http.listen");
}

fn config(name: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("config").join(name);
    std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

fn load_config(text: &str) -> Result<Loaded, Faults> {
    let env = [("AZURE_STORAGE_KEY", "a2V5"), ("REGISTRY_PASSWORD", "pw"), ("AZURE_STORAGE_SAS", "sig=x")];
    let env = env.map(|(name, value)| (name.to_owned(), value.to_owned()));
    load_text("plan.toml", text, Syntax::Toml, Path::new(""), env)
}

#[test]
fn shipped_plans_load_without_remarks_that_surprise() {
    assert_eq!(load_config(&config("plan.toml")).unwrap().notes, []);
    assert_eq!(load_config(&config("local.toml")).unwrap().notes, []);
    let notes = load_config(&config("docker-compose.toml")).unwrap().notes;
    let paths: Vec<&str> = notes.iter().map(|note| note.path.as_str()).collect();
    assert_eq!(paths, ["store.endpoint", "http.listen", "deadlines.shutdown"]);
}

// `key = ...`, also behind a comment sign.
fn key_of(line: &str) -> Option<&str> {
    let (key, _) = line.strip_prefix("# ").unwrap_or(line).split_once(" = ")?;
    key.bytes().all(|b| b.is_ascii_lowercase() || b == b'_').then_some(key)
}

#[test]
fn the_reference_plan_mentions_every_key() {
    let text = config("plan.toml");
    let mut section = String::new();
    let mut mentioned = BTreeSet::new();
    for line in text.lines() {
        let plain = line.strip_prefix("# ").unwrap_or(line);
        if let Some(name) = plain.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')) {
            section = name.replace("feeds.edits", "feeds.*");
            mentioned.insert((String::new(), section.split('.').next().unwrap().to_owned()));
            if let Some((parent, key)) = section.split_once('.') {
                mentioned.insert((parent.to_owned(), key.to_owned()));
            }
        } else if let Some(key) = key_of(line) {
            mentioned.insert((section.clone(), key.to_owned()));
            // Keys of a table in one line.
            if let Some((_, table)) = plain.split_once(" = { ") {
                let inner = table
                    .split(", ")
                    .filter_map(|pair| pair.split_once(" = "))
                    .map(|(key, _)| key.to_owned());
                mentioned.extend(inner.map(|inner| (format!("{section}.{key}"), inner)));
            }
        }
    }
    for shape in SHAPES {
        for key in shape.keys {
            let wanted = (shape.section.to_owned(), (*key).to_owned());
            assert!(mentioned.contains(&wanted), "config/plan.toml does not mention {wanted:?}");
        }
    }
}

#[test]
fn the_reference_plan_tells_the_defaults_as_they_are() {
    // Lines that are examples and no defaults.
    const EXAMPLES: [&str; 7] = [
        "# username = \"blobfeed\"",
        "# password = \"${env:REGISTRY_PASSWORD}\"",
        "# credential = { type = \"sas\", sas = \"${env:AZURE_STORAGE_SAS}\" }",
        "# type = \"directory\"",
        "# path = \"store\"",
        "# type = \"file\"",
        "# path = \"offsets.json\"",
    ];
    let text = config("plan.toml");
    let expected = load_config(&text).unwrap().plan;
    let lines: Vec<&str> = text.lines().collect();
    let mut told = 0;
    for (i, line) in lines.iter().enumerate() {
        if !line.starts_with("# ") || key_of(line).is_none() || EXAMPLES.contains(line) {
            continue;
        }
        let mut changed = lines.clone();
        changed[i] = &line[2..];
        let plan = load_config(&changed.join("\n")).unwrap_or_else(|faults| panic!("{line}: {faults}")).plan;
        assert_eq!(plan, expected, "{line}");
        told += 1;
    }
    assert!(told >= 35, "only {told} lines tell a default");
}
