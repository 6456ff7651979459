//! Counters and gauges in Prometheus' model.

use std::collections::BTreeMap;
use std::sync::atomic::AtomicU64;
use std::sync::{Mutex, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

use prometheus_client::encoding::{EncodeLabelSet, text};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::{Registry, Unit};

/// Label of figures kept per feed.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct FeedLabel {
    /// The feed's name.
    pub feed: String,
}

/// Label of requests that failed.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct FailureLabel {
    operation: &'static str,
    kind: &'static str,
}

/// All figures of a process.
pub struct Metrics {
    registry: Registry,
    records: Family<FeedLabel, Counter>,
    record_bytes: Family<FeedLabel, Counter>,
    blocks: Family<FeedLabel, Counter>,
    block_bytes: Family<FeedLabel, Counter>,
    blobs: Family<FeedLabel, Counter>,
    commits: Family<FeedLabel, Counter>,
    persisted: Family<FeedLabel, Counter>,
    failures: Family<FailureLabel, Counter>,
    gaps: Family<FeedLabel, Counter>,
    lag: Family<FeedLabel, Gauge>,
    ready: Gauge,
    assigned: Gauge,
    failed: Gauge,
    paused: Gauge,
    buffered: Gauge,
    budget: Gauge,
    polled_at: Gauge<f64, AtomicU64>,
    workers: Mutex<BTreeMap<usize, SystemTime>>,
}

/// The figures of one feed, looked up once so that counting is a single atomic addition.
#[derive(Clone)]
pub struct FeedMetrics {
    /// Records written into open blobs.
    pub records: Counter,
    /// Bytes of keys and values of those records, as Kafka gave them.
    pub record_bytes: Counter,
    /// Blocks staged.
    pub blocks: Counter,
    /// Bytes of blocks staged.
    pub block_bytes: Counter,
    /// Blobs committed.
    pub blobs: Counter,
    /// Commits: ranges of which all blobs are committed.
    pub commits: Counter,
    /// Offsets persisted.
    pub persisted: Counter,
    /// Offsets passed between two records that hold no record: compacted, aborted, or transaction markers.
    pub gaps: Counter,
    /// Records between the committed offset and the end of the log, as of the last look.
    pub lag: Gauge,
}

impl Metrics {
    /// All figures at zero.
    pub fn new() -> Metrics {
        let mut registry = Registry::with_prefix("blobfeed");
        let records: Family<FeedLabel, Counter> = Family::default();
        registry.register("records", "Records written into open blobs", records.clone());
        let record_bytes: Family<FeedLabel, Counter> = Family::default();
        let help = "Keys and values of records written into open blobs";
        registry.register_with_unit("record", help, Unit::Bytes, record_bytes.clone());
        let blocks: Family<FeedLabel, Counter> = Family::default();
        registry.register("blocks_staged", "Blocks staged", blocks.clone());
        let block_bytes: Family<FeedLabel, Counter> = Family::default();
        registry.register_with_unit("staged", "Bytes of blocks staged", Unit::Bytes, block_bytes.clone());
        let blobs: Family<FeedLabel, Counter> = Family::default();
        registry.register("blobs_committed", "Blobs committed", blobs.clone());
        let commits: Family<FeedLabel, Counter> = Family::default();
        registry.register("commits", "Ranges of which all blobs are committed", commits.clone());
        let persisted: Family<FeedLabel, Counter> = Family::default();
        registry.register("offsets_persisted", "Offsets persisted", persisted.clone());
        let failures: Family<FailureLabel, Counter> = Family::default();
        let help = "Attempts at requests that failed, by operation and kind of error";
        registry.register("request_failures", help, failures.clone());
        let gaps: Family<FeedLabel, Counter> = Family::default();
        let help = "Offsets between two records that hold none: compacted, aborted, or transaction markers";
        registry.register("offset_gaps", help, gaps.clone());
        let lag: Family<FeedLabel, Gauge> = Family::default();
        let help =
            "Records between the committed offsets and the ends of the logs of the assigned partitions";
        registry.register("lag_records", help, lag.clone());
        let mut gauge = |name: &str, help: &str| {
            let gauge: Gauge = Gauge::default();
            registry.register(name, help, gauge.clone());
            gauge
        };
        let ready = gauge("ready", "1 when /readyz says ok, else 0");
        let assigned = gauge("assigned_partitions", "Partitions assigned to this process");
        let failed = gauge("failed_partitions", "Partitions that stopped and need a person");
        let paused = gauge(
            "waiting_partitions",
            "Partitions that wait: for a position, a schema, the store or the client",
        );
        let buffered = gauge("buffered_bytes", "Bytes of the memory budget in use");
        let budget = gauge("budget_bytes", "The memory budget");
        let polled_at: Gauge<f64, AtomicU64> = Gauge::default();
        registry.register(
            "last_poll_timestamp_seconds",
            "When the group was last served, in seconds since 1970",
            polled_at.clone(),
        );
        Metrics {
            registry,
            records,
            record_bytes,
            blocks,
            block_bytes,
            blobs,
            commits,
            persisted,
            failures,
            gaps,
            lag,
            ready,
            assigned,
            failed,
            paused,
            buffered,
            budget,
            polled_at,
            workers: Mutex::default(),
        }
    }

    /// The figures of `feed`.
    pub fn feed(&self, feed: &str) -> FeedMetrics {
        let label = FeedLabel { feed: feed.to_owned() };
        FeedMetrics {
            records: self.records.get_or_create_owned(&label),
            record_bytes: self.record_bytes.get_or_create_owned(&label),
            blocks: self.blocks.get_or_create_owned(&label),
            block_bytes: self.block_bytes.get_or_create_owned(&label),
            blobs: self.blobs.get_or_create_owned(&label),
            commits: self.commits.get_or_create_owned(&label),
            persisted: self.persisted.get_or_create_owned(&label),
            gaps: self.gaps.get_or_create_owned(&label),
            lag: self.lag.get_or_create_owned(&label),
        }
    }

    /// Counts a failed attempt.
    pub fn failure(&self, operation: &'static str, kind: &'static str) {
        self.failures.get_or_create(&FailureLabel { operation, kind }).inc();
    }

    /// States how many partitions there are: assigned, failed, waiting.
    pub fn partitions(&self, assigned: usize, failed: usize, waiting: usize) {
        self.assigned.set(as_gauge(assigned));
        self.failed.set(as_gauge(failed));
        self.paused.set(as_gauge(waiting));
    }

    /// States whether nothing keeps the process from being ready.
    pub fn ready(&self, ready: bool) {
        self.ready.set(i64::from(ready));
    }

    /// States how much of the budget is used.
    pub fn memory(&self, used: usize, limit: usize) {
        self.buffered.set(as_gauge(used));
        self.budget.set(as_gauge(limit));
    }

    /// States that `worker` served its group at `now`. What is shown is the time of the worker that is furthest behind.
    pub fn polled(&self, worker: usize, now: SystemTime) {
        let mut workers = self.workers.lock().unwrap_or_else(PoisonError::into_inner);
        workers.insert(worker, now);
        let oldest = workers.values().min().copied().unwrap_or(now);
        self.polled_at.set(oldest.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs_f64());
    }

    /// States that `worker` serves no group any more.
    pub fn ended(&self, worker: usize) {
        self.workers.lock().unwrap_or_else(PoisonError::into_inner).remove(&worker);
    }

    /// When the worker that is furthest behind served its group; `None` when no worker runs.
    pub fn last_poll(&self) -> Option<SystemTime> {
        self.workers.lock().unwrap_or_else(PoisonError::into_inner).values().min().copied()
    }

    /// All figures in the OpenMetrics text format.
    pub fn encode(&self) -> String {
        let mut out = String::new();
        // Writing into a String cannot fail.
        let _ = text::encode(&mut out, &self.registry);
        out
    }
}

impl Default for Metrics {
    fn default() -> Metrics {
        Metrics::new()
    }
}

fn as_gauge(value: usize) -> i64 {
    i64::try_from(value).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_appear_under_their_names() {
        let metrics = Metrics::new();
        let feed = metrics.feed("edits");
        feed.records.inc_by(3);
        metrics.feed("edits").records.inc();
        metrics.failure("Put Block", "unavailable");
        metrics.memory(10, 20);
        let text = metrics.encode();
        assert!(text.contains("blobfeed_records_total{feed=\"edits\"} 4"), "{text}");
        assert!(
            text.contains("blobfeed_request_failures_total{operation=\"Put Block\",kind=\"unavailable\"} 1")
        );
        assert!(text.contains("blobfeed_buffered_bytes 10"));
        assert!(text.ends_with("# EOF\n"));
    }
}
