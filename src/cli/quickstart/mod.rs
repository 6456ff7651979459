//! `blobfeed quickstart`: the whole thing with nothing installed.
//!
//! Owns: an embedded broker and registry, the records, a connector as a child process that is killed and restarted, the
//! report.
//! Does not own: any other way to copy than `blobfeed run`: the child is the same program with an ordinary plan.

mod data;
mod registry;
mod report;

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};
use tokio::process::{Child, Command};

use super::{args, exit};
use crate::kafka::embedded::{EmbeddedBroker, KEPT_PER_PARTITION, Producer};
use crate::offset::{self, SharedOffsets};
use crate::plan;

const PLAN: &str = "quickstart";
const FEED: &str = "orders";
const TOPIC: &str = "shop.orders";
const CONTAINER: &str = "blobs";
const PARTITIONS: i32 = 4;
/// How long nothing may move before the attempt is given up.
const PATIENCE: Duration = Duration::from_secs(90);

/// Runs the quickstart and prints what happened.
pub(super) async fn quickstart(options: args::Quickstart) -> u8 {
    match attempt(&options).await {
        Ok(true) => exit::DONE,
        Ok(false) => exit::FAILED,
        Err(error) => {
            eprintln!("error: {error:#}");
            exit::FAILED
        }
    }
}

// The folder of one quickstart.
struct Folder {
    path: PathBuf,
    // Removes the folder on drop, unless the user named one.
    temporary: Option<tempfile::TempDir>,
}

impl Folder {
    fn open(dir: Option<&Path>) -> anyhow::Result<Folder> {
        let Some(dir) = dir else {
            let temporary = tempfile::tempdir().context("no temporary folder can be made")?;
            return Ok(Folder { path: temporary.path().to_owned(), temporary: Some(temporary) });
        };
        std::fs::create_dir_all(dir).with_context(|| format!("folder {} cannot be made", dir.display()))?;
        let entries = std::fs::read_dir(dir).with_context(|| format!("{} is no folder", dir.display()))?;
        if entries.count() > 0 {
            bail!("folder {} is not empty; name one that is empty or absent", dir.display());
        }
        Ok(Folder { path: dir.canonicalize()?, temporary: None })
    }

    fn plan(&self) -> PathBuf {
        self.path.join("plan.toml")
    }

    fn store(&self) -> PathBuf {
        self.path.join("store")
    }

    fn offsets(&self) -> PathBuf {
        self.path.join("offsets.json")
    }

    fn log(&self) -> PathBuf {
        self.path.join("connector.log")
    }
}

async fn attempt(options: &args::Quickstart) -> anyhow::Result<bool> {
    let folder = Folder::open(options.dir.as_deref())?;
    let broker = EmbeddedBroker::start().context("the embedded broker does not start")?;
    broker.create_topic(TOPIC, PARTITIONS).context("the topic cannot be made")?;
    let registry = registry::serve(data::SCHEMA).await.context("the embedded registry does not start")?;
    let servers = broker.bootstrap_servers();
    write_plan(&folder, &servers, &registry.url)?;
    println!("broker    embedded, {servers}, topic {TOPIC} with {PARTITIONS} partitions");
    println!("registry  embedded, {}", registry.url);
    println!("store     {}", folder.store().display());
    println!("records   {} in Avro, made as they are read", options.records);

    let offsets = offset::open(&plan::OffsetStorage::File { path: folder.offsets() })?;
    let total = options.records;
    let first = if options.no_kill { total } else { total.div_ceil(2) };
    let progress =
        Progress { offsets, produced: Arc::default(), open: Arc::new(AtomicU64::new(first)), total };
    let producing = produce(servers, progress.clone());
    let began = Instant::now();
    let mut child = start_connector(&folder, 1).await?;
    println!("connector started (process {}), log in {}", child.id().unwrap_or(0), folder.log().display());

    let mut killed_at = None;
    if !options.no_kill {
        let persisted = progress.wait_for(first, &mut child).await?;
        // The other half is sent now, and read within half a flush: it dies with records in open blobs, as in life.
        progress.open.store(total, Ordering::Release);
        tokio::time::sleep(Duration::from_millis(500)).await;
        // SIGKILL: no handler, no goodbye, as when a machine dies.
        child.kill().await.context("the connector cannot be killed")?;
        println!("\nconnector killed (SIGKILL) with {persisted} of {} records persisted", options.records);
        killed_at = Some(persisted);
        child = start_connector(&folder, 2).await?;
        println!(
            "connector started again (process {}); the group waits a few seconds for the dead member's session",
            child.id().unwrap_or(0)
        );
    }
    progress.wait_for(options.records, &mut child).await?;
    let took = began.elapsed();
    stop(&mut child).await?;
    producing.await.context("producing was interrupted")??;
    drop(broker);

    let found = report::read_back(&folder.store().join(CONTAINER), options.records)?;
    let positions = progress.positions().await?;
    report::print(&found, &positions, options.records, took, killed_at);
    if let Some(temporary) = folder.temporary {
        temporary.close().context("the temporary folder cannot be removed")?;
        println!("\nKeep the blobs:       blobfeed quickstart --dir quickstart-data");
    } else {
        println!("\nLook into a blob:     blobfeed inspect {}", found.example.display());
        println!("See the plan:         blobfeed check {}", folder.plan().display());
    }
    println!(
        "Copy your own topics: write a plan (config/plan.toml shows every key), then blobfeed check PLAN, blobfeed run PLAN"
    );
    Ok(found.is_complete(options.records))
}

fn write_plan(folder: &Folder, servers: &str, registry: &str) -> anyhow::Result<()> {
    let text = format!(
        r#"# Written by `blobfeed quickstart`. The broker and the registry in it live as long as the quickstart does.
name = "{PLAN}"

[kafka]
bootstrap_servers = "{servers}"
# Short, so that the group soon notices that the killed connector is gone.
properties = {{ "session.timeout.ms" = "6000", "heartbeat.interval.ms" = "1000" }}

[schema_registry]
url = "{registry}"

[store]
type = "directory"
path = {store:?}

[offset_storage]
type = "file"
path = {offsets:?}

[flush]
interval = "1s"

[http]
listen = ""

[feeds.{FEED}]
topics = ["{TOPIC}"]
container = "{CONTAINER}"
stream = "orders"
start = "earliest"
"#,
        store = folder.store(),
        offsets = folder.offsets(),
    );
    std::fs::write(folder.plan(), text).context("the plan cannot be written")
}

// Starts the connector for the `time`-th time and waits until it runs: only then does it answer signals.
async fn start_connector(folder: &Folder, time: usize) -> anyhow::Result<Child> {
    let log =
        File::options().create(true).append(true).open(folder.log()).context("the log cannot be written")?;
    let program = std::env::current_exe().context("the program does not know its own path")?;
    let mut child = Command::new(program)
        .args(["--log-format", "text", "run"])
        .arg(folder.plan())
        .stdin(Stdio::null())
        .stdout(log.try_clone()?)
        .stderr(log)
        .kill_on_drop(true)
        .spawn()
        .context("the connector cannot be started")?;
    let began = Instant::now();
    while began.elapsed() < PATIENCE {
        if let Some(status) = child.try_wait()? {
            bail!("the connector ended by itself with {status}; see its log (use --dir to keep it)");
        }
        let log = std::fs::read_to_string(folder.log())?;
        if log.matches("connector running").count() >= time {
            return Ok(child);
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    bail!("the connector does not come up; see its log (use --dir to keep it)")
}

async fn stop(child: &mut Child) -> anyhow::Result<()> {
    let id = child.id().context("the connector has ended by itself")?;
    // SIGTERM through the shell's own tool: the process handles it as an operator would send it.
    let sent = Command::new("kill").args(["-TERM", &id.to_string()]).status().await?;
    let status = tokio::time::timeout(Duration::from_secs(30), child.wait())
        .await
        .context("the connector does not stop on SIGTERM")??;
    if !sent.success() || !status.success() {
        bail!("the connector ended with {status}");
    }
    Ok(())
}

// How far the connector is, by what it has persisted.
#[derive(Clone)]
struct Progress {
    offsets: SharedOffsets,
    produced: Arc<AtomicU64>,
    // How many records may be produced for now.
    open: Arc<AtomicU64>,
    total: u64,
}

impl Progress {
    async fn positions(&self) -> anyhow::Result<Vec<u64>> {
        let mut positions = vec![0; PARTITIONS as usize];
        for entry in self.offsets.list(PLAN).await? {
            let partition: usize = entry.key.id.parse().context("an odd partition id")?;
            let offset = entry.offset.parse().context("an odd offset")?;
            *positions.get_mut(partition).context("an odd partition id")? = offset;
        }
        Ok(positions)
    }

    // Waits until so many records are persisted; their number, which may be larger.
    async fn wait_for(&self, records: u64, child: &mut Child) -> anyhow::Result<u64> {
        let (mut last, mut moved) = (0, Instant::now());
        loop {
            if let Some(status) = child.try_wait()? {
                bail!("the connector ended by itself with {status}; see its log (use --dir to keep it)");
            }
            // A file that is being replaced right now is read in the next round.
            let persisted = self.positions().await.map(|p| p.iter().sum()).unwrap_or(last);
            if persisted != last {
                let produced = self.produced.load(Ordering::Relaxed);
                println!("  {persisted:>9} persisted, {produced:>9} produced, of {}", self.total);
                (last, moved) = (persisted, Instant::now());
            }
            if persisted >= records {
                return Ok(persisted);
            }
            if moved.elapsed() > PATIENCE {
                bail!("nothing has moved for {PATIENCE:?}; see the connector's log (use --dir to keep it)");
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }
}

// The embedded broker forgets what is more than 5 MiB old: never run further ahead than half of that.
fn produce(servers: String, progress: Progress) -> tokio::task::JoinHandle<anyhow::Result<()>> {
    let runtime = tokio::runtime::Handle::current();
    tokio::task::spawn_blocking(move || {
        let producer = Producer::new(&servers)?;
        let ahead = (KEPT_PER_PARTITION / 2 / data::MAX_BYTES) as u64 * PARTITIONS as u64;
        let mut datum = Vec::with_capacity(data::MAX_BYTES);
        let mut persisted = 0;
        for sequence in 0..progress.total {
            while sequence >= (persisted + ahead).min(progress.open.load(Ordering::Acquire)) {
                persisted = runtime.block_on(progress.positions()).map_or(persisted, |p| p.iter().sum());
                if sequence >= (persisted + ahead).min(progress.open.load(Ordering::Acquire)) {
                    producer.flush(Duration::from_secs(30))?;
                    std::thread::sleep(Duration::from_millis(20));
                }
            }
            let partition = (sequence % PARTITIONS as u64) as i32;
            data::encode(sequence, &mut datum);
            producer.send(TOPIC, partition, &sequence.to_be_bytes(), &datum)?;
            progress.produced.fetch_add(1, Ordering::Relaxed);
        }
        producer.flush(Duration::from_secs(60))?;
        Ok(())
    })
}
