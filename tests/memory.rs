//! The memory budget holds while the store is slower than Kafka, and what a run costs.
//!
//! 5,000,000 records of some 330 bytes, budget 64 MiB, a store that takes 20 MB/s: the connector may use 96 MiB beside
//! its budget, stays a member of its group throughout, and loses nothing. Then the same without the throttle, for the
//! figures; and 300 partitions in place of four, which must not cost more memory.
//!
//! `BLOBFEED_TEST_MEMORY_RECORDS` sets another number of records.
//!
//! The figures of the README come from `scripts/bench-readme`, which runs this.

mod harness;

use std::time::{Duration, Instant};

use harness::discard::{Counts, DiscardStore};
use harness::kafka::Sender;
use harness::{Case, Connector, Exit, Plan, Topic, records, registry};
use tokio::sync::Mutex;

/// Partitions of the topic that the figures are about.
const PARTITIONS: i32 = 4;
const BUDGET: u64 = 64 << 20;
const BESIDE_BUDGET: u64 = 96 << 20;
const RATE: u64 = 20_000_000;

fn count() -> u64 {
    let given = std::env::var("BLOBFEED_TEST_MEMORY_RECORDS").ok();
    given
        .map_or(5_000_000, |text| text.parse().unwrap_or_else(|_| panic!("{text:?} is no number of records")))
}

/// One test at a time: what is measured must have the machine for itself.
static ALONE: Mutex<()> = Mutex::const_new(());

/// Fills `topic`; the bytes of all values.
fn fill(topic: &Topic, schema: u32, count: u64) -> u64 {
    let sender = Sender::new(
        topic,
        &[
            ("compression.type", "lz4"),
            ("linger.ms", "50"),
            ("batch.size", "1000000"),
            ("queue.buffering.max.kbytes", "200000"),
        ],
    );
    let (mut value, mut datum, mut bytes) = (Vec::new(), Vec::new(), 0);
    for (number, partition) in (0..count).zip((0..topic.partitions).cycle()) {
        records::encode(number, &mut datum);
        value.clear();
        value.push(0);
        value.extend_from_slice(&schema.to_be_bytes());
        value.extend_from_slice(&datum);
        sender.send(partition, Some(&value));
        bytes += datum.len() as u64;
        if number % 1024 == 0 {
            sender.poll();
        }
    }
    sender.finish();
    bytes
}

/// What a run took.
struct Run {
    exit: Exit,
    counts: Counts,
    peak: u64,
    cpu: Duration,
    // From the first staged byte to the end: neither the start nor joining the group.
    wall: Duration,
}

async fn run(case: &Case, plan: &Plan, store: DiscardStore) -> Run {
    let connector = case.run_until_end(plan);
    let watch = Watch::start(&connector);
    let exit = connector.exit(Duration::from_secs(600)).await;
    let seen = watch.end();
    exit.demand(0, &["all topics are copied"]);
    let wall = working_time(&exit.log);
    Run { counts: store.counts(), peak: seen.peak, cpu: seen.cpu, wall, exit }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_slow_store_costs_time_and_not_memory() {
    let count = count();
    let mut case = Case::new("memory").await;
    let topic = case.topic(PARTITIONS).await;
    let schema = registry::register(&topic.name, records::SCHEMA).await;
    let begun = Instant::now();
    let to = topic.clone();
    let bytes =
        tokio::task::spawn_blocking(move || fill(&to, schema, count)).await.expect("the topic is filled");
    println!("{count} records, {} bytes each, produced in {:?}", bytes / count, begun.elapsed());

    let throttled = DiscardStore::start(Some(RATE), Some(records::MARK)).await;
    let plan = plan(&mut case, "throttled", &topic, &throttled, "64MiB");
    let slow = run(&case, &plan, throttled).await;
    report("throttled to 20 MB/s, budget 64 MiB", &slow, count, bytes);
    demand_complete(&slow.counts, count, bytes);
    assert_eq!(slow.counts.marks, count, "marks in what the store was sent: each record has one");
    demand_budget(&slow);
    let assignments = slow.exit.log.matches("partitions assigned by the group").count();
    assert_eq!(assignments, 1, "the group was formed once: {}", slow.exit.tail());
    let slowest = Duration::from_secs(bytes / RATE);
    assert!(
        slow.wall > slowest * 9 / 10,
        "the store was to be the bottleneck: {:?} of {slowest:?}",
        slow.wall
    );

    let open = DiscardStore::start(None, None).await;
    let plan = self::plan(&mut case, "open", &topic, &open, "512MiB");
    let fast = run(&case, &plan, open).await;
    report("store not throttled, budget 512 MiB, null codec", &fast, count, bytes);
    demand_complete(&fast.counts, count, bytes);
    case.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn many_partitions_cost_no_more_memory() {
    let _alone = ALONE.lock().await;
    // Each has an open blob with a tail, and each fetch asks for all of them.
    let count = count().min(600_000);
    let mut case = Case::new("partitions").await;
    let (topic, bytes) = filled(&mut case, 300, count).await;
    let throttled = DiscardStore::start(Some(RATE), Some(records::MARK)).await;
    let plan = plan(&mut case, "throttled", &topic, &throttled, "64MiB");
    let slow = run(&case, &plan, throttled).await;
    report("300 partitions, throttled to 20 MB/s, budget 64 MiB", &slow, count, bytes);
    demand_complete(&slow.counts, count, bytes);
    assert_eq!(slow.counts.marks, count, "marks in what the store was sent: each record has one");
    demand_budget(&slow);
    case.finish().await;
}

/// A topic with `count` records, and the bytes of their datums.
async fn filled(case: &mut Case, partitions: i32, count: u64) -> (Topic, u64) {
    let topic = case.topic(partitions).await;
    let schema = registry::register(&topic.name, records::SCHEMA).await;
    let begun = Instant::now();
    let to = topic.clone();
    let bytes =
        tokio::task::spawn_blocking(move || fill(&to, schema, count)).await.expect("the topic is filled");
    println!("{count} records, {} bytes each, produced in {:?}", bytes / count, begun.elapsed());
    (topic, bytes)
}

fn demand_budget(run: &Run) {
    let allowed = BUDGET + BESIDE_BUDGET;
    assert!(run.peak <= allowed, "peak RSS {} MiB, {} MiB allowed", run.peak >> 20, allowed >> 20);
}

fn plan(case: &mut Case, what: &str, topic: &Topic, store: &DiscardStore, budget: &str) -> Plan {
    let mut plan = case.plan_named(&format!("{}-{what}", case.name), topic);
    plan.store = Plan::azure(&store.endpoint()).replace("checksum = \"md5\"", "checksum = \"crc64\"");
    plan.flush = "interval = \"10s\"".to_owned();
    plan.more = format!("[memory]\nbudget = \"{budget}\"");
    plan.feed_more = "format = { input = \"avro\", output = \"avro\", codec = \"null\" }".to_owned();
    plan
}

fn demand_complete(counts: &Counts, count: u64, bytes: u64) {
    assert!(counts.odd.is_empty(), "requests that nobody expected: {:?}", counts.odd);
    assert_eq!(counts.records, count, "records by the blobs' own metadata");
    // With the null codec a container is its datums and, a block, a few dozen bytes.
    assert!(counts.bytes > bytes && counts.bytes < bytes + bytes / 100, "{} bytes of {bytes}", counts.bytes);
}

fn report(what: &str, run: &Run, count: u64, bytes: u64) {
    let gigabytes = bytes as f64 / 1e9;
    println!(
        "{what}: {:.0} records/s, {:.1} MB/s, {:.2} CPU seconds per GB, {:.0} ns of CPU per record, peak RSS {} MiB, \
         {} blobs, {:.1} s",
        count as f64 / run.wall.as_secs_f64(),
        bytes as f64 / 1e6 / run.wall.as_secs_f64(),
        run.cpu.as_secs_f64() / gigabytes,
        run.cpu.as_nanos() as f64 / count as f64,
        run.peak >> 20,
        run.counts.blobs,
        run.wall.as_secs_f64(),
    );
}

// From the assignment to the last words, by the log's own clock.
fn working_time(log: &str) -> Duration {
    let time_of = |words: &str| {
        let line = log
            .lines()
            .find(|line| line.contains(words))
            .unwrap_or_else(|| panic!("no {words:?} in the log"));
        let line: serde_json::Value = serde_json::from_str(line).expect("a line of JSON");
        let time = line["timestamp"].as_str().expect("a time").parse::<chrono::DateTime<chrono::Utc>>();
        time.expect("a time in RFC 3339")
    };
    (time_of("all topics are copied") - time_of("partitions assigned by the group"))
        .to_std()
        .expect("in this order")
}

/// What the system says about a process, looked at until it ends.
struct Watch {
    thread: std::thread::JoinHandle<Seen>,
}

#[derive(Debug, Clone, Copy, Default)]
struct Seen {
    /// The largest resident set, in bytes.
    peak: u64,
    /// Processor time, user and system.
    cpu: Duration,
}

impl Watch {
    fn start(connector: &Connector) -> Watch {
        let pid = connector.pid();
        let thread = std::thread::spawn(move || {
            let mut seen = Seen::default();
            // The kernel keeps the peak itself; only the last 20 ms of the process can escape.
            while let Some(now) = look(pid) {
                seen = now;
                std::thread::sleep(Duration::from_millis(20));
            }
            seen
        });
        Watch { thread }
    }

    fn end(self) -> Seen {
        let seen = self.thread.join().expect("looking does not panic");
        assert!(seen.peak > 0, "the process was gone before it could be looked at");
        seen
    }
}

// None when the process has ended: a zombie has no memory.
fn look(pid: u32) -> Option<Seen> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    let peak: u64 = peak.trim().trim_end_matches(" kB").parse().ok()?;
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The second field is the name in brackets, which may hold spaces; utime and stime are the 14th and the 15th.
    let fields: Vec<&str> = stat.rsplit_once(')')?.1.split_whitespace().collect();
    let ticks: u64 = fields[11].parse::<u64>().ok()? + fields[12].parse::<u64>().ok()?;
    // USER_HZ, which is 100 on every Linux.
    Some(Seen { peak: peak << 10, cpu: Duration::from_millis(ticks * 10) })
}
