//! What goes wrong is said clearly: what, where, and what to do; what can pass is waited for, what cannot ends the run.
//!
//! Servers go down behind proxies of each test's own, so that no test disturbs another.

mod harness;

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use harness::connector::{self, call};
use harness::gate::{Gate, Way};
use harness::private::PrivateKafka;
use harness::store_proxy::{self, Fault, StoreProxy};
use harness::wait::throughout;
use harness::{Case, Connector, Plan, SOON, Topic, avro, azurite, registry, servers, zookeeper};

const NUMBER: &str = r#"{"type":"record","name":"Number","fields":[{"name":"number","type":"long"}]}"#;

/// Numbers from `first` on, framed, in turn over the partitions of `topic`.
fn numbers(topic: &Topic, schema: u32, first: i64, count: i64) -> Vec<(i32, Vec<u8>)> {
    let partition = |number: i64| i32::try_from(number % i64::from(topic.partitions)).expect("small");
    (first..first + count).map(|number| (partition(number), number_value(schema, number))).collect()
}

fn number_value(schema: u32, number: i64) -> Vec<u8> {
    let mut datum = Vec::new();
    avro::long(number, &mut datum);
    avro::framed(schema, &datum)
}

/// How often each number is in the files below `folder`.
async fn found(folder: &Path) -> BTreeMap<i64, usize> {
    let mut found = BTreeMap::new();
    for container in avro::read(folder).await {
        for record in container.records {
            *found.entry(record["number"].as_i64().expect("a number")).or_default() += 1;
        }
    }
    found
}

/// The numbers from 0 on are in the files below `folder`, each once.
async fn demand_each_once(folder: &Path, count: i64) {
    let found = found(folder).await;
    let expected: BTreeMap<i64, usize> = (0..count).map(|number| (number, 1)).collect();
    assert!(found == expected, "{} different numbers of {count}", found.len());
}

async fn offsets(plan: &Plan) -> BTreeMap<i32, i64> {
    let reader = zookeeper::Reader::connect().await;
    reader.offsets(&plan.root(), &plan.name, &plan.feed).await
}

/// Waits until everything up to `records` is persisted.
async fn persisted(connector: &Connector, plan: &Plan, records: i64) {
    let reader = zookeeper::Reader::connect().await;
    connector
        .eventually(&format!("{records} records to be persisted"), async || {
            let sum: i64 = reader.offsets(&plan.root(), &plan.name, &plan.feed).await.values().sum();
            if sum >= records { Ok(()) } else { Err(format!("{sum}")) }
        })
        .await;
}

async fn stop(connector: Connector) {
    connector.signal("TERM");
    connector.exit(Duration::from_secs(25)).await.demand(0, &[]);
}

/// A topic of two partitions with `count` numbers in it, and the id of their schema.
async fn loaded(case: &mut Case, count: i64) -> (Topic, u32) {
    let topic = case.topic(2).await;
    let schema = registry::register(&topic.name, NUMBER).await;
    topic.send_all(numbers(&topic, schema, 0, count));
    (topic, schema)
}

// Plans.

/// `run` refuses the plan with 78, `check` with 1, and both say all of `words`.
fn demand_refused(path: &Path, words: &[&str]) {
    let path = path.to_str().expect("temporary paths are UTF-8");
    call(&["run", path]).demand(78, words);
    call(&["check", path]).demand(1, words);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_plan_that_is_missing_or_no_plan_is_refused() {
    let case = Case::new("noplan").await;
    demand_refused(&case.path("absent.toml"), &["absent.toml"]);
    std::fs::create_dir(case.path("folder.toml")).expect("a folder");
    demand_refused(&case.path("folder.toml"), &["folder.toml"]);
    std::fs::write(case.path("torn.toml"), "name = \"x\n[kafka").expect("a file");
    demand_refused(&case.path("torn.toml"), &["torn.toml"]);
    std::fs::write(case.path("empty.toml"), "").expect("a file");
    demand_refused(&case.path("empty.toml"), &["name", "kafka", "feeds"]);
    call(&["run"]).demand(2, &["PLAN"]);
    call(&["swim"]).demand(2, &["swim"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn all_faults_of_a_plan_are_told_at_once_with_their_paths() {
    let mut case = Case::new("faults").await;
    let topic = Topic { name: "t".to_owned(), partitions: 1, bootstrap: servers::kafka() };
    let mut plan = case.plan(&topic);
    plan.flush = "interval = 5\nintervall = \"5s\"\nmax_blob_size = \"huge\"".to_owned();
    plan.kafka = "workers = \"many\"".to_owned();
    plan.container = "Not_Allowed".to_owned();
    plan.properties.push(("group.id".to_owned(), "mine".to_owned()));
    plan.more = "[memory]\nbudget = true\n[colour]\nred = 1".to_owned();
    plan.start = "yesterday".to_owned();
    let path = case.write(&plan);
    let words = [
        "flush.interval",
        "intervall",
        "flush.max_blob_size",
        "kafka.workers",
        "container",
        "Not_Allowed",
        "group.id",
        "group_id",
        "memory.budget",
        "colour",
        "start",
        "yesterday",
    ];
    demand_refused(&path, &words);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_container_name_that_azure_forbids_is_refused() {
    let mut case = Case::new("container").await;
    let topic = Topic { name: "t".to_owned(), partitions: 1, bootstrap: servers::kafka() };
    for name in ["ab", "Upper", "under_score", "-dash", "two--dashes", "dash-", &"x".repeat(64)] {
        let mut plan = case.plan(&topic);
        plan.container = name.to_owned();
        demand_refused(&case.write(&plan), &["container", name]);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_secret_that_is_not_there_is_named() {
    let mut case = Case::new("secret").await;
    let topic = Topic { name: "t".to_owned(), partitions: 1, bootstrap: servers::kafka() };
    let mut plan = case.plan(&topic);
    plan.store = plan.store.replace("${env:AZURE_STORAGE_KEY}", "${env:BLOBFEED_TEST_ABSENT}");
    demand_refused(&case.write(&plan), &["store.credential.key", "BLOBFEED_TEST_ABSENT"]);
    plan.store = plan.store.replace("${env:BLOBFEED_TEST_ABSENT}", "${file:/absent/key}");
    demand_refused(&case.write(&plan), &["store.credential.key", "/absent/key"]);
}

// Kafka.

#[tokio::test(flavor = "multi_thread")]
async fn a_topic_that_does_not_exist_ends_the_run_and_is_named() {
    let mut case = Case::new("notopic").await;
    let topic = Topic { name: format!("{}-absent", case.name), partitions: 1, bootstrap: servers::kafka() };
    let plan = case.plan(&topic);
    let exit = case.run(&plan).exit(SOON).await;
    assert!(matches!(exit.code, Some(78 | 3)), "{:?}", exit.code);
    exit.demand(exit.code.unwrap_or_default(), &[&topic.name, "not exist"]);
    case.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_broker_that_is_down_at_the_start_is_waited_for() {
    let mut case = Case::new("nobroker").await;
    let (topic, _) = loaded(&mut case, 100).await;
    let gate = Gate::to(&servers::kafka(), Way::Shut).await;
    let mut plan = case.plan(&topic);
    plan.bootstrap = gate.address();
    let connector = case.run(&plan);
    connector.is_unready(&["kafka"]).await;
    throughout("the connector waits", Duration::from_secs(2), async || {
        match connector.get("/livez").await? {
            (200, _) => Ok(()),
            other => Err(format!("{other:?}")),
        }
    })
    .await;
    gate.set(Way::Open);
    persisted(&connector, &plan, 100).await;
    connector.is_ready().await;
    stop(connector).await;
    case.download(&plan).await;
    case.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_broker_that_dies_is_waited_for() {
    let mut case = Case::new("brokerdies").await;
    let kafka = PrivateKafka::start(&case).await;
    let topic = Topic::create_at(&kafka.address(), &case.name, 2).await;
    let schema = registry::register(&topic.name, NUMBER).await;
    topic.send_all(numbers(&topic, schema, 0, 1000));
    let plan = case.plan(&topic);
    let connector = case.run(&plan);
    persisted(&connector, &plan, 1000).await;
    connector.is_ready().await;

    kafka.kill().await;
    connector.is_unready(&["group", "session timed out"]).await;
    assert_eq!(connector.get("/livez").await.expect("an answer").0, 200);

    kafka.up().await;
    topic.send_all(numbers(&topic, schema, 1000, 1000));
    persisted(&connector, &plan, 2000).await;
    connector.is_ready().await;
    stop(connector).await;
    let folder = blobs(&case, &plan).await;
    demand_each_once(&folder, 2000).await;
    drop(kafka);
    azurite::delete(&plan.container).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_topic_that_is_deleted_while_it_is_read_is_named() {
    let mut case = Case::new("deleted").await;
    let topic = Topic::create(&case.name, 2).await;
    let schema = registry::register(&topic.name, NUMBER).await;
    topic.send_all(numbers(&topic, schema, 0, 100));
    let mut plan = case.plan(&topic);
    // The client believes in it at once and not after half a minute.
    plan.properties.push(("topic.metadata.propagation.max.ms".to_owned(), "1000".to_owned()));
    let connector = case.run(&plan);
    persisted(&connector, &plan, 100).await;
    connector.is_ready().await;
    topic.delete().await;
    connector.is_unready(&[&topic.name]).await;

    // Another topic of the same name: the offsets mean nothing in it, and a person has to say what they are to be.
    let topic = Topic::create(&case.name, 2).await;
    topic.send_all(numbers(&topic, schema, 100, 10));
    connector.is_unready(&[&topic.name, "outside the log"]).await;
    assert_eq!(offsets(&plan).await.values().sum::<i64>(), 100);
    stop(connector).await;
    topic.delete().await;
    case.finish().await;
}

/// Downloads the plan's container; the folder.
async fn blobs(case: &Case, plan: &Plan) -> std::path::PathBuf {
    let blobs = case.download(plan).await;
    let first = blobs.first().expect("there are blobs");
    let depth = first.name.split('/').count();
    first.path.ancestors().nth(depth).expect("the folder").to_owned()
}

// The store.

#[tokio::test(flavor = "multi_thread")]
async fn a_wrong_account_key_ends_the_run_and_is_not_shown() {
    let mut case = Case::new("wrongkey").await;
    let (topic, _) = loaded(&mut case, 10).await;
    let path = case.write(&case.plan_unlisted(&topic));
    // 64 bytes like a key, and a canary.
    let wrong = "V3JvbmdLZXlDYW5hcnlXcm9uZ0tleUNhbmFyeVdyb25nS2V5Q2FuYXJ5V3JvbmdLZXlDYW5hcnlXcm9uZ0tleQ==";
    let run = |key: &str| {
        let mut command = connector::command(&["--log-format", "json", "run", path.to_str().expect("UTF-8")]);
        command.env("AZURE_STORAGE_KEY", key);
        Connector::spawn(case.folder(), command)
    };
    let exit = run(wrong).exit(SOON).await;
    exit.demand(3, &["403", "key"]);
    assert!(!exit.log.contains("V3JvbmdLZXlDYW5hcnl"), "{}", exit.tail());
    // One that is no key at all is a fault of the plan.
    let exit = run("this is no base64!").exit(SOON).await;
    exit.demand(78, &["key"]);
    assert!(!exit.log.contains("this is no base64!"), "{}", exit.tail());
    case.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_store_that_answers_500_moves_no_offset_and_loses_nothing() {
    let mut case = Case::new("store500").await;
    let (topic, schema) = loaded(&mut case, 1000).await;
    let proxy = StoreProxy::start(None).await;
    let mut plan = case.plan(&topic);
    plan.store = Plan::azure(&proxy.endpoint());
    let connector = case.run(&plan);
    persisted(&connector, &plan, 1000).await;

    // First commits fail, though blocks can be staged; then everything.
    for chosen in [store_proxy::put_block_list, store_proxy::all] {
        let before = offsets(&plan).await;
        let records: i64 = before.values().sum();
        let struck = proxy.struck();
        proxy.fail(Fault::Status(500), usize::MAX, chosen);
        topic.send_all(numbers(&topic, schema, records, 1000));
        connector.is_unready(&["store", "500"]).await;
        throughout("no offset moves", Duration::from_secs(2), async || {
            let now = offsets(&plan).await;
            if now == before { Ok(()) } else { Err(format!("{now:?}")) }
        })
        .await;
        assert!(proxy.struck() > struck);
        proxy.heal();
        persisted(&connector, &plan, records + 1000).await;
        connector.is_ready().await;
    }
    stop(connector).await;
    demand_each_once(&blobs(&case, &plan).await, 3000).await;
    case.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_kill_while_the_store_answers_500_loses_nothing() {
    let mut case = Case::new("kill500").await;
    let (topic, _) = loaded(&mut case, 1000).await;
    let proxy = StoreProxy::start(None).await;
    let mut plan = case.plan(&topic);
    plan.store = Plan::azure(&proxy.endpoint());
    proxy.fail(Fault::Status(500), usize::MAX, store_proxy::put_block_list);
    let connector = case.run(&plan);
    connector.is_unready(&["store", "500"]).await;
    connector.kill();
    assert_eq!(
        offsets(&plan).await.values().sum::<i64>(),
        0,
        "nothing is committed, so nothing is persisted"
    );
    proxy.heal();
    case.copy(&plan).await;
    demand_each_once(&blobs(&case, &plan).await, 1000).await;
    case.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn connections_that_are_cut_and_answers_that_are_lost_double_nothing() {
    let mut case = Case::new("cut").await;
    let (topic, _) = loaded(&mut case, 2000).await;
    let proxy = StoreProxy::start(None).await;
    let mut plan = case.plan(&topic);
    plan.store = Plan::azure(&proxy.endpoint());
    plan.flush = "interval = \"500ms\"\nmax_records_per_blob = 100".to_owned();
    // The commits of some blobs: once not sent, then made but not answered. The same for blocks.
    proxy.fail(Fault::Cut, 3, store_proxy::put_block_list);
    proxy.fail(Fault::SwallowAnswer, 4, store_proxy::put_block_list);
    proxy.fail(Fault::Cut, 3, store_proxy::put_block);
    proxy.fail(Fault::SwallowAnswer, 4, store_proxy::put_block);
    proxy.fail(Fault::Status(503), 3, store_proxy::put_block);
    case.copy(&plan).await;
    assert_eq!(proxy.struck(), 17);
    demand_each_once(&blobs(&case, &plan).await, 2000).await;
    case.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_member_whose_store_fails_gives_its_partitions_up_in_time() {
    let mut case = Case::new("failing").await;
    let (topic, schema) = loaded(&mut case, 1000).await;
    let proxy = StoreProxy::start(None).await;
    let healthy = case.plan(&topic);
    let mut failing = healthy.clone();
    failing.store = Plan::azure(&proxy.endpoint());
    failing.more = "[deadlines]\nrevoke = \"2s\"".to_owned();
    let first = case.run(&failing);
    persisted(&first, &failing, 1000).await;
    proxy.fail(Fault::Status(500), usize::MAX, store_proxy::put_block_list);
    topic.send_all(numbers(&topic, schema, 1000, 1000));
    first.is_unready(&["store", "500"]).await;

    // It has 500 records of each partition that it cannot commit. What it gives up, the other writes.
    let second = case.run(&healthy);
    persisted(&second, &healthy, 1500).await;
    first.says(&["given up before all was committed"]).await;
    assert_eq!(second.assigned().await, 1);
    proxy.heal();
    persisted(&second, &healthy, 2000).await;
    stop(first).await;
    stop(second).await;
    demand_each_once(&blobs(&case, &healthy).await, 2000).await;
    case.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_container_that_is_removed_is_waited_for() {
    let mut case = Case::new("removed").await;
    let (topic, schema) = loaded(&mut case, 100).await;
    let plan = case.plan(&topic);
    let connector = case.run(&plan);
    persisted(&connector, &plan, 100).await;
    azurite::delete(&plan.container).await;
    topic.send_all(numbers(&topic, schema, 100, 100));
    connector.is_unready(&["store", &plan.container, "does not exist"]).await;
    assert_eq!(offsets(&plan).await.values().sum::<i64>(), 100);
    azurite::create(&plan.container).await;
    persisted(&connector, &plan, 200).await;
    connector.is_ready().await;
    stop(connector).await;
    let expected: BTreeMap<i64, usize> = (100..200).map(|number| (number, 1)).collect();
    assert_eq!(found(&blobs(&case, &plan).await).await, expected, "all that came after the first container");
    case.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_offset_that_somebody_else_moves_is_followed_and_not_overwritten() {
    let mut case = Case::new("moved").await;
    let topic = case.topic(1).await;
    let schema = registry::register(&topic.name, NUMBER).await;
    topic.send_all(numbers(&topic, schema, 0, 100));
    let plan = case.plan(&topic);
    let connector = case.run(&plan);
    persisted(&connector, &plan, 100).await;
    let node =
        format!("{}/{}-{}-0", plan.root(), zookeeper::escape(&plan.name), zookeeper::escape(&plan.feed));
    zookeeper::Reader::connect().await.set(&node, "40").await;
    // Noticed at the next commit.
    topic.send_all(numbers(&topic, schema, 100, 10));
    connector.says(&["resuming at the persisted offset", "\"40\""]).await;
    persisted(&connector, &plan, 110).await;
    connector.is_ready().await;
    stop(connector).await;
    let found = found(&blobs(&case, &plan).await).await;
    let again = |number: i64| if number < 40 { 1 } else { 2 };
    assert_eq!(found, (0..110).map(|number| (number, again(number))).collect::<BTreeMap<i64, usize>>());
    case.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_full_disk_is_waited_out() {
    let mut case = Case::new("full").await;
    let topic = case.topic(1).await;
    let schema = registry::register(&topic.name, r#""bytes""#).await;
    // 8 MiB that do not shrink.
    let value = |number: u64| {
        let mut datum = Vec::new();
        avro::long(8192, &mut datum);
        let mut state = number;
        datum.extend((0..8192).map(|_| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 56) as u8
        }));
        avro::framed(schema, &datum)
    };
    topic.send_all((0..1024).map(|number| (0, value(number))));
    let disk = SmallDisk::make(&case);
    let mut plan = case.plan(&topic);
    plan.store = Plan::directory(&disk.path);
    plan.offsets = Plan::file(&case.path("offsets.json"));
    plan.feed_more = "format = { input = \"avro\", output = \"avro\", codec = \"null\" }".to_owned();
    let path = case.write(&plan);
    let arguments = ["--log-format", "json", "run", path.to_str().expect("UTF-8")];
    let connector = Connector::spawn(case.folder(), disk.confine(connector::command(&arguments)));
    connector.is_unready(&["store"]).await;
    let stored = std::fs::read_to_string(case.path("offsets.json")).unwrap_or_default();
    assert!(!stored.contains("1024"), "{stored}");
    disk.enlarge(&connector);
    connector
        .eventually("all to be persisted", async || {
            let partition = connector.partition(0).await?;
            if partition["persisted"] == 1024 { Ok(()) } else { Err(partition.to_string()) }
        })
        .await;
    connector.is_ready().await;
    stop(connector).await;
    let count: u64 = avro::summaries(&disk.path).await.iter().map(|container| container.count).sum();
    assert_eq!(count, 1024);
    case.finish().await;
}

/// A folder that takes some 4 MiB: a file system of its own where one may be mounted, else a limit on the size of files.
struct SmallDisk {
    path: std::path::PathBuf,
    mounted: bool,
}

impl SmallDisk {
    fn make(case: &Case) -> SmallDisk {
        let path = case.path("disk");
        std::fs::create_dir(&path).expect("a folder");
        let done = std::process::Command::new("mount")
            .args(["-t", "tmpfs", "-o", "size=4m", "tmpfs"])
            .arg(&path)
            .output();
        let mounted = done.is_ok_and(|done| done.status.success());
        SmallDisk { path, mounted }
    }

    fn confine(&self, command: std::process::Command) -> std::process::Command {
        if self.mounted {
            return command;
        }
        // A limit of 1 MiB a file; without the signal that goes with it, a write beyond is an error like any other.
        let mut confined = std::process::Command::new("bash");
        confined
            .args(["-c", "trap '' XFSZ; ulimit -S -f 1024; exec \"$0\" \"$@\""])
            .arg(command.get_program());
        confined.args(command.get_args()).stdin(std::process::Stdio::null());
        for (name, value) in command.get_envs() {
            match value {
                Some(value) => confined.env(name, value),
                None => confined.env_remove(name),
            };
        }
        confined
    }

    fn enlarge(&self, connector: &Connector) {
        let mut command = if self.mounted {
            let mut command = std::process::Command::new("mount");
            command.args(["-o", "remount,size=64m"]).arg(&self.path);
            command
        } else {
            let mut command = std::process::Command::new("prlimit");
            command.args(["--pid", &connector.pid().to_string(), "--fsize=unlimited:unlimited"]);
            command
        };
        assert!(command.status().expect("the system's own tool").success(), "{command:?}");
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        if self.mounted {
            let _ = std::process::Command::new("umount").arg("-l").arg(&self.path).status();
        }
    }
}

// Registry and offset storage.

#[tokio::test(flavor = "multi_thread")]
async fn a_registry_that_is_down_is_waited_for() {
    let mut case = Case::new("noregistry").await;
    let (topic, _) = loaded(&mut case, 100).await;
    let gate = Gate::to(&servers::address(&servers::registry()), Way::Shut).await;
    let mut plan = case.plan(&topic);
    plan.registry = servers::registry().replace(&servers::address(&servers::registry()), &gate.address());
    let connector = case.run(&plan);
    connector.is_unready(&["registry"]).await;
    connector
        .eventually("the partition to say that it waits", async || {
            let partition = connector.partition(0).await?;
            let reason = partition["reason"].as_str().unwrap_or_default();
            if partition["state"] == "waiting" && reason.contains("schema") {
                Ok(())
            } else {
                Err(partition.to_string())
            }
        })
        .await;
    gate.set(Way::Open);
    persisted(&connector, &plan, 100).await;
    connector.is_ready().await;
    stop(connector).await;
    demand_each_once(&blobs(&case, &plan).await, 100).await;
    case.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_zookeeper_that_is_down_is_waited_for() {
    let mut case = Case::new("nozookeeper").await;
    let (topic, schema) = loaded(&mut case, 100).await;
    let gate = Gate::to(&servers::zookeeper(), Way::Shut).await;
    let mut plan = case.plan(&topic);
    plan.offsets = format!("{}\nsession_timeout = \"4s\"", Plan::zookeeper(&gate.address(), &plan.root()));
    let connector = case.run(&plan);
    connector.is_unready(&["offset"]).await;
    throughout("nothing is written before the position is known", Duration::from_secs(1), async || {
        match azurite::list(&plan.container).await.len() {
            0 => Ok(()),
            count => Err(format!("{count} blobs")),
        }
    })
    .await;
    gate.set(Way::Open);
    persisted(&connector, &plan, 100).await;
    connector.is_ready().await;

    // Down and hanging, long enough for the session to be over: blobs are committed all the same, offsets follow.
    for (way, first) in [(Way::Shut, 100), (Way::Hung, 200)] {
        gate.set(way);
        topic.send_all(numbers(&topic, schema, first, 100));
        connector.is_unready(&["offset"]).await;
        tokio::time::sleep(Duration::from_secs(5)).await;
        assert_eq!(offsets(&plan).await.values().sum::<i64>(), first);
        gate.set(Way::Open);
        persisted(&connector, &plan, first + 100).await;
        connector.is_ready().await;
    }
    stop(connector).await;
    demand_each_once(&blobs(&case, &plan).await, 300).await;
    case.finish().await;
}

// Records.

#[tokio::test(flavor = "multi_thread")]
async fn a_bad_record_stops_its_partition_only_and_is_named() {
    let mut case = Case::new("badrecord").await;
    let topic = case.topic(6).await;
    let schema = registry::register(&topic.name, NUMBER).await;
    // 50 good ones in each partition, then a bad one in all but the last, then 50 good ones.
    topic.send_all(numbers(&topic, schema, 0, 300));
    let number = number_value(schema, 7);
    let magic = [&[1], &number[1..]].concat();
    let bad: [(Option<&[u8]>, &str); 5] = [
        (Some(&magic), "magic"),
        (Some(&number[..5]), "end"),
        (None, "null"),
        (Some(&avro::framed(4_000_000_000, &number[5..])), "4000000000"),
        (Some(&[&number[..], b"behind"].concat()), "behind"),
    ];
    for (partition, (value, _)) in (0..).zip(bad) {
        assert_eq!(topic.send(partition, value), 50);
    }
    topic.send_all(numbers(&topic, schema, 300, 300));

    let plan = case.plan(&topic);
    let connector = case.run(&plan);
    persisted(&connector, &plan, 5 * 50 + 100).await;
    let expected: BTreeMap<i32, i64> = (0..6).map(|n| (n, if n == 5 { 100 } else { 50 })).collect();
    assert_eq!(offsets(&plan).await, expected);
    connector.is_unready(&[&topic.name, "offset 50"]).await;
    for (partition, (_, word)) in (0..).zip(bad) {
        // The status is brought up to date once a second.
        let reason = connector
            .eventually("the partition to have failed", async || {
                let status = connector.partition(partition).await?;
                let reason = status["reason"].as_str().filter(|_| status["state"] == "failed");
                reason.map(str::to_owned).ok_or_else(|| status.to_string())
            })
            .await;
        for part in [&*topic.name, &format!("partition {partition}"), "offset 50", word] {
            assert!(reason.contains(part), "{part:?} is not in {reason:?}");
        }
    }
    let healthy = connector.partition(5).await.expect("a status");
    assert_eq!(healthy["state"], "reading", "{healthy}");
    topic.send_all((600..610).map(|number| (5, number_value(schema, number))));
    persisted(&connector, &plan, 5 * 50 + 110).await;
    assert!(connector.metric("blobfeed_failed_partitions").await >= 5.0);
    stop(connector).await;

    // The same again to the end: an exit code, and every reason in the last words.
    let exit = case.run_until_end(&plan).exit(SOON).await;
    let mut words = vec!["offset 50".to_owned()];
    words.extend((0..5).map(|partition| format!("topic {} partition {partition} offset 50", topic.name)));
    exit.demand(3, &words.iter().map(String::as_str).collect::<Vec<_>>());
    assert_eq!(offsets(&plan).await.values().sum::<i64>(), 5 * 50 + 110, "nobody moves past a bad record");
    let found = found(&blobs(&case, &plan).await).await;
    let expected = (0..610).filter(|number| *number < 300 || *number >= 600 || number % 6 == 5);
    assert_eq!(found, expected.map(|number| (number, 1)).collect::<BTreeMap<i64, usize>>());
    case.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stored_offset_outside_the_log_stops_the_partition_and_is_named() {
    let mut case = Case::new("range").await;
    let (topic, _) = loaded(&mut case, 100).await;
    let plan = case.plan(&topic);
    case.copy(&plan).await;
    let reader = zookeeper::Reader::connect().await;
    let node = |partition: i32| {
        format!(
            "{}/{}-{}-{partition}",
            plan.root(),
            zookeeper::escape(&plan.name),
            zookeeper::escape(&plan.feed)
        )
    };
    // Beyond the end; and before the first record that is left.
    reader.set(&node(0), "1000").await;
    topic.expire(1, 40).await;
    reader.set(&node(1), "7").await;
    let exit = case.run_until_end(&plan).exit(SOON).await;
    exit.demand(
        3,
        &[&format!("{}[0]", topic.name), "1000", "[0, 50)", &format!("{}[1]", topic.name), "[40, 50)"],
    );
    assert_eq!(offsets(&plan).await, BTreeMap::from([(0, 1000), (1, 7)]), "a person decides");
    // What is no number is no offset.
    reader.set(&node(0), "fifty").await;
    reader.set(&node(1), "50").await;
    case.run_until_end(&plan).exit(SOON).await.demand(3, &["fifty"]);
    case.finish().await;
}

// The process.

#[tokio::test(flavor = "multi_thread")]
async fn an_http_port_in_use_ends_the_run_and_is_named() {
    let mut case = Case::new("port").await;
    let (topic, _) = loaded(&mut case, 1).await;
    let taken = std::net::TcpListener::bind(("127.0.0.1", 0)).expect("a free port");
    let mut plan = case.plan(&topic);
    plan.listen = taken.local_addr().expect("an address").to_string();
    let exit = case.run(&plan).exit(SOON).await;
    exit.demand(3, &[&plan.listen, "listen"]);
    case.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_second_signal_leaves_at_once_and_a_drain_ends_at_its_deadline() {
    let mut case = Case::new("signals").await;
    let (topic, _) = loaded(&mut case, 100).await;
    let proxy = StoreProxy::start(None).await;
    let mut plan = case.plan(&topic);
    plan.store = Plan::azure(&proxy.endpoint());
    proxy.fail(Fault::Status(500), usize::MAX, store_proxy::put_block_list);
    let running = async |plan: &Plan| {
        let connector = case.run(plan);
        connector.is_unready(&["store"]).await;
        connector.signal("TERM");
        connector.says(&["SIGTERM"]).await;
        connector
    };

    let connector = running(&plan).await;
    connector.signal("TERM");
    let exit = connector.exit(Duration::from_secs(3)).await;
    exit.demand(3, &["second signal"]);

    plan.more = "[deadlines]\nshutdown = \"3s\"".to_owned();
    let exit = running(&plan).await.exit(Duration::from_secs(10)).await;
    exit.demand(3, &["deadline"]);
    assert!(exit.took > Duration::from_secs(2), "it left after {:?}, with time left", exit.took);
    assert_eq!(offsets(&plan).await.values().sum::<i64>(), 0);

    proxy.heal();
    case.copy(&plan).await;
    demand_each_once(&blobs(&case, &plan).await, 100).await;
    case.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_changed_plan_is_taken_over_in_place_and_a_broken_one_is_not() {
    let mut case = Case::new("hangup").await;
    let (topic, schema) = loaded(&mut case, 100).await;
    let mut plan = case.plan(&topic);
    let connector = case.run(&plan);
    persisted(&connector, &plan, 100).await;

    connector.signal("HUP");
    connector.says(&["the plan has not changed"]).await;

    plan.stream = "later".to_owned();
    case.write(&plan);
    connector.signal("HUP");
    connector.says(&["the plan has changed"]).await;
    topic.send_all(numbers(&topic, schema, 100, 100));
    persisted(&connector, &plan, 200).await;

    let mut broken = plan.clone();
    broken.flush = "intervall = \"1s\"".to_owned();
    std::fs::write(case.path(&format!("{}.toml", plan.name)), broken.toml()).expect("a plan can be written");
    connector.signal("HUP");
    connector.says(&["intervall", "kept"]).await;
    topic.send_all(numbers(&topic, schema, 200, 100));
    persisted(&connector, &plan, 300).await;
    stop(connector).await;

    let folder = blobs(&case, &plan).await;
    demand_each_once(&folder, 300).await;
    assert_eq!(found(&folder.join("departures")).await.len(), 100);
    assert_eq!(found(&folder.join("later")).await.len(), 200);
    case.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn secrets_are_in_no_output() {
    let mut case = Case::new("canary").await;
    let (topic, _) = loaded(&mut case, 10).await;
    let mut plan = case.plan(&topic);
    // A password that the broker refuses; it is told to librdkafka, which likes to talk.
    let ca = harness::private::servers_folder().join("tls/ca.crt");
    plan.bootstrap = servers::kafka_sasl();
    for (name, value) in [
        ("security.protocol", "SASL_SSL"),
        ("sasl.mechanism", "PLAIN"),
        ("sasl.username", "blobfeed"),
        ("sasl.password", "${env:BLOBFEED_TEST_CANARY}"),
        ("ssl.ca.location", ca.to_str().expect("UTF-8")),
        ("debug", "security,broker,conf"),
    ] {
        plan.properties.push((name.to_owned(), value.to_owned()));
    }
    let registry = "username = \"reader\"\npassword = \"${env:BLOBFEED_TEST_CANARY}\"";
    let path = case.path("plan.toml");
    let with_registry =
        plan.toml().replace("[schema_registry]\n", &format!("[schema_registry]\n{registry}\n"));
    std::fs::write(&path, &with_registry).expect("a plan can be written");
    let path = path.to_str().expect("UTF-8");
    const CANARY: &str = "Canary7f3aPassword";
    let encoded = ["Canary7f3aPassword", "Q2FuYXJ5N2YzYVBhc3N3b3Jk", "cmVhZGVyOkNhbmFyeTdmM2FQYXNzd29yZA"];
    let clean = |text: &str| {
        for word in encoded {
            assert!(!text.contains(word), "the canary {word} is in:\n{text}");
        }
    };
    let with_canary = |arguments: &[&str]| {
        let mut command = connector::command(arguments);
        command.env("BLOBFEED_TEST_CANARY", CANARY);
        command
    };
    for arguments in [&["check", path][..], &["check", path, "--format", "json"]] {
        let done = with_canary(arguments).output().expect("the program starts");
        assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
        clean(&String::from_utf8_lossy(&done.stdout));
        clean(&String::from_utf8_lossy(&done.stderr));
    }
    let arguments = ["--log", "trace", "--log-format", "json", "run", path];
    let connector = Connector::spawn(case.folder(), with_canary(&arguments));
    connector.is_unready(&["kafka"]).await;
    connector.says(&["librdkafka"]).await;
    for page in ["/", "/status", "/metrics", "/readyz"] {
        clean(&connector.get(page).await.expect("an answer").1);
    }
    let exit = connector.kill();
    clean(&exit.log);
    clean(&exit.output);
    case.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn encrypted_and_authenticated_brokers_are_read() {
    let mut case = Case::new("sasl").await;
    let (topic, _) = loaded(&mut case, 100).await;
    let ca = harness::private::servers_folder().join("tls/ca.crt");
    for mechanism in ["PLAIN", "SCRAM-SHA-512"] {
        let mut plan = case.plan_named(&format!("{}-{}", case.name, mechanism.to_lowercase()), &topic);
        plan.bootstrap = servers::kafka_sasl();
        for (name, value) in [
            ("security.protocol", "SASL_SSL"),
            ("sasl.mechanism", mechanism),
            ("sasl.username", "blobfeed"),
            ("sasl.password", "blobfeed-test"),
            ("ssl.ca.location", ca.to_str().expect("UTF-8")),
        ] {
            plan.properties.push((name.to_owned(), value.to_owned()));
        }
        let exit = case.copy(&plan).await;
        assert!(!exit.log.contains("blobfeed-test"), "{}", exit.tail());
        demand_each_once(&blobs(&case, &plan).await, 100).await;
    }
    case.finish().await;
}
