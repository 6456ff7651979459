//! What a plan will do, for people and programs.
//!
//! Owns: the words of `blobfeed check`.
//! Does not own: the plan. Of secrets it says at most that there is one.

use std::fmt;
use std::time::Duration;

use serde::Serialize;

use super::fault::Note;
use super::types::{
    AzureCredential, Codec, Delivery, Feed, Flush, OffsetStorage, Output, Plan, Start, Store,
};
use super::units::{show_duration, show_size};

/// A plan in words.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Summary {
    /// The plan's name.
    pub plan: String,
    /// `kafka.bootstrap_servers`.
    pub bootstrap_servers: String,
    /// `kafka.group_id`.
    pub group_id: String,
    /// `kafka.workers`.
    pub workers: usize,
    /// Names of the properties that are passed to librdkafka; values may be secrets.
    pub properties: Vec<String>,
    /// URLs of the schema registry.
    pub schema_registry: Vec<String>,
    /// Kind and place of the store.
    pub store: String,
    /// Kind and place of the offset storage.
    pub offset_storage: String,
    /// The memory budget in bytes.
    pub memory_budget: u64,
    /// The smallest budget that this plan works with, in bytes.
    pub memory_minimum: u64,
    /// Where HTTP is served.
    pub http: Option<String>,
    /// The feeds, in order of name.
    pub feeds: Vec<FeedSummary>,
    /// Remarks.
    pub notes: Vec<Note>,
}

/// A feed in words.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct FeedSummary {
    /// The feed's name.
    pub name: String,
    /// Its topics.
    pub topics: Vec<String>,
    /// Where it starts when no offset is known.
    pub start: String,
    /// The container that blobs go to.
    pub container: String,
    /// A blob's name as partition 0 of each topic gives it.
    pub example_blobs: Vec<String>,
    /// What is read and what is written.
    pub format: String,
    /// What a crash may cost.
    pub delivery: String,
    /// When blobs are committed, in words.
    pub flush: String,
    /// Requests that change the store, per day and partition, when each interval has records of one schema that fit
    /// one block. Each further block is a request more; an interval without records costs none.
    pub requests_per_partition_and_day: u64,
}

impl Summary {
    pub(super) fn of(plan: &Plan, notes: &[Note]) -> Summary {
        Summary {
            plan: plan.name.to_string(),
            bootstrap_servers: plan.kafka.bootstrap_servers.clone(),
            group_id: plan.kafka.group_id.clone(),
            workers: plan.kafka.workers,
            properties: plan.kafka.properties.keys().cloned().collect(),
            schema_registry: plan.schema_registry.as_ref().map(|r| r.urls.clone()).unwrap_or_default(),
            store: store(&plan.store),
            offset_storage: offset_storage(&plan.offset_storage),
            memory_budget: plan.memory.budget,
            memory_minimum: plan.memory_minimum(),
            http: plan.http.as_ref().map(|http| http.listen.to_string()),
            feeds: plan.feeds.iter().map(feed).collect(),
            notes: notes.to_vec(),
        }
    }
}

fn store(store: &Store) -> String {
    match store {
        Store::Azure(azure) => {
            let credential = match azure.credential {
                AzureCredential::SharedKey(_) => "shared key",
                AzureCredential::Sas(_) => "SAS",
            };
            format!("azure, account {} at {}, by {credential}", azure.account, azure.endpoint)
        }
        Store::Directory(directory) => format!("directory {}", directory.path.display()),
        Store::Memory => "memory".to_owned(),
    }
}

fn offset_storage(storage: &OffsetStorage) -> String {
    match storage {
        OffsetStorage::Zookeeper(zookeeper) => {
            format!("zookeeper {} at {}", zookeeper.connect, zookeeper.root)
        }
        OffsetStorage::File { path } => format!("file {}", path.display()),
        OffsetStorage::Memory => "memory".to_owned(),
    }
}

fn feed(feed: &Feed) -> FeedSummary {
    FeedSummary {
        name: feed.name.to_string(),
        topics: feed.topics.iter().map(ToString::to_string).collect(),
        start: start(feed.start),
        container: feed.target.container.to_string(),
        example_blobs: feed.topics.iter().map(|topic| feed.target.example(topic, 0)).collect(),
        format: format!("avro (schema by id from the registry) to {}", output(&feed.format.output)),
        delivery: match feed.delivery {
            Delivery::AtLeastOnce => {
                "at_least_once: nothing is lost; a crash between the commit of blobs and the \
                                      persisting of their offset writes that interval again"
                    .to_owned()
            }
        },
        flush: flush(&feed.flush),
        requests_per_partition_and_day: requests_per_day(feed.flush.interval),
    }
}

fn start(start: Start) -> String {
    match start {
        Start::Earliest => "earliest".to_owned(),
        Start::Latest => "latest".to_owned(),
        Start::At(time) => chrono::DateTime::<chrono::Utc>::from(time).to_rfc3339(),
    }
}

fn output(output: &Output) -> String {
    match output {
        Output::Avro(Codec::Null) => "avro, not compressed".to_owned(),
        Output::Avro(Codec::Deflate(level)) => format!("avro, deflate level {level}"),
        Output::Avro(Codec::Snappy) => "avro, snappy".to_owned(),
        Output::Avro(Codec::Zstandard(level)) => format!("avro, zstandard level {level}"),
    }
}

fn flush(flush: &Flush) -> String {
    let records = match flush.max_records_per_blob {
        Some(records) => format!(" or {records} records"),
        None => String::new(),
    };
    format!(
        "each {}, or at {} a commit; blobs to {}{records}, blocks to {}",
        show_duration(flush.interval),
        show_size(flush.max_commit_size),
        show_size(flush.max_blob_size),
        show_size(flush.max_block_size)
    )
}

// A Put Block and a Put Block List per interval.
fn requests_per_day(interval: Duration) -> u64 {
    const DAY: u128 = 86_400_000;
    u64::try_from(2 * DAY.div_ceil(interval.as_millis().max(1))).unwrap_or(u64::MAX)
}

impl fmt::Display for Summary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "plan       {}", self.plan)?;
        writeln!(
            f,
            "kafka      {}, group {}, {} worker(s)",
            self.bootstrap_servers, self.group_id, self.workers
        )?;
        if !self.properties.is_empty() {
            writeln!(f, "           with {}", self.properties.join(", "))?;
        }
        writeln!(f, "registry   {}", self.schema_registry.join(", "))?;
        writeln!(f, "store      {}", self.store)?;
        writeln!(f, "offsets    {}", self.offset_storage)?;
        let (budget, minimum) = (show_size(self.memory_budget), show_size(self.memory_minimum));
        writeln!(f, "memory     {budget}; this plan needs at least {minimum}")?;
        writeln!(f, "http       {}", self.http.as_deref().unwrap_or("off"))?;
        for feed in &self.feeds {
            write!(f, "{feed}")?;
        }
        if !self.notes.is_empty() {
            writeln!(f)?;
        }
        for note in &self.notes {
            writeln!(f, "note: {note}")?;
        }
        Ok(())
    }
}

impl fmt::Display for FeedSummary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "\nfeed {}", self.name)?;
        for (topic, blob) in self.topics.iter().zip(&self.example_blobs) {
            writeln!(f, "  topic    {topic} -> {}/{blob}", self.container)?;
        }
        writeln!(f, "  start    {} where no offset is known", self.start)?;
        writeln!(f, "  format   {}", self.format)?;
        writeln!(f, "  delivery {}", self.delivery)?;
        writeln!(f, "  flush    {}", self.flush)?;
        writeln!(
            f,
            "  requests {} a day for a partition that always has records, one more per further block or schema",
            self.requests_per_partition_and_day
        )
    }
}
