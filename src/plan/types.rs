//! A plan after loading: defaults applied, secrets resolved, per-feed overrides merged.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use crate::model::Secret;

/// One checked configuration.
#[derive(Debug, Clone, PartialEq)]
pub struct Plan {
    /// `name`: part of group id, offset keys, metadata.
    pub name: Arc<str>,
    /// `[kafka]`.
    pub kafka: Kafka,
    /// `[schema_registry]`; needed by Confluent-framed input.
    pub schema_registry: Option<SchemaRegistry>,
    /// `[store]`.
    pub store: Store,
    /// `[offset_storage]`.
    pub offset_storage: OffsetStorage,
    /// `[memory]`.
    pub memory: Memory,
    /// `[http]`; `None` when `listen = ""`.
    pub http: Option<Http>,
    /// `[deadlines]`.
    pub deadlines: Deadlines,
    /// `[feeds.<name>]`, in order of name.
    pub feeds: Vec<Feed>,
}

/// `[kafka]`.
#[derive(Debug, Clone, PartialEq)]
pub struct Kafka {
    /// `bootstrap_servers`.
    pub bootstrap_servers: String,
    /// `group_id`; default `blobfeed-<plan>`.
    pub group_id: String,
    /// `workers`: members of the group in this process; default 1.
    pub workers: usize,
    /// `commit_group_offsets`: also tell the broker, for lag tools; default true.
    pub commit_group_offsets: bool,
    /// `properties`: librdkafka's, secrets among them.
    pub properties: BTreeMap<String, Secret>,
}

/// `[schema_registry]`.
#[derive(Debug, Clone, PartialEq)]
pub struct SchemaRegistry {
    /// `url`: one, or several separated by commas, tried in order.
    pub urls: Vec<String>,
    /// `username` and `password`, for basic authentication.
    pub basic: Option<(String, Secret)>,
    /// `allow_http`: whether a password may go over http to another machine; default false.
    pub allow_http: bool,
    /// `timeout` of one request; default 10 s.
    pub timeout: Duration,
}

/// `[store]`, by `type`.
#[derive(Debug, Clone, PartialEq)]
pub enum Store {
    /// `azure`.
    Azure(AzureStore),
    /// `directory`.
    Directory(DirectoryStore),
    /// `memory`: lost with the process; for tests.
    Memory,
}

/// `[store] type = "azure"`.
#[derive(Debug, Clone, PartialEq)]
pub struct AzureStore {
    /// `account`: the account's name, also needed for the shared key with a custom `endpoint`.
    pub account: String,
    /// `endpoint`; default `https://<account>.blob.core.windows.net`.
    pub endpoint: url::Url,
    /// `credential`.
    pub credential: AzureCredential,
    /// `allow_http`: whether the credential may go over http to another machine; default false.
    pub allow_http: bool,
    /// `checksum` of blocks; default crc64.
    pub checksum: Checksum,
    /// `create_container` when it is absent; default true.
    pub create_container: bool,
    /// `request_timeout`: of one attempt at one request; default 60 s.
    pub request_timeout: Duration,
    /// `concurrency`: blocks staged at once, per process; default 16.
    pub concurrency: usize,
}

/// `credential` of the Azure store, by `type`.
#[derive(Debug, Clone, PartialEq)]
pub enum AzureCredential {
    /// `shared_key`: the account key, base64.
    SharedKey(Secret),
    /// `sas`: a shared access signature, with or without the leading `?`.
    Sas(Secret),
}

/// Checksum sent with each block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Checksum {
    /// `x-ms-content-crc64`.
    Crc64,
    /// `Content-MD5`.
    Md5,
    /// None.
    None,
}

/// `[store] type = "directory"`.
#[derive(Debug, Clone, PartialEq)]
pub struct DirectoryStore {
    /// `path`: the folder that holds the containers as folders.
    pub path: PathBuf,
}

/// `[offset_storage]`, by `type`.
#[derive(Debug, Clone, PartialEq)]
pub enum OffsetStorage {
    /// `zookeeper`.
    Zookeeper(Zookeeper),
    /// `file`: `path` of one file for all offsets of the plan.
    File {
        /// `path`.
        path: PathBuf,
    },
    /// `memory`: lost with the process; for tests.
    Memory,
}

/// `[offset_storage] type = "zookeeper"`.
#[derive(Debug, Clone, PartialEq)]
pub struct Zookeeper {
    /// `connect`: `host:port[,host:port...][/chroot]`.
    pub connect: String,
    /// `root`: the node under which offsets lie; default `/teknek/offset`.
    pub root: String,
    /// `session_timeout`; default 30 s.
    pub session_timeout: Duration,
}

/// `[delivery]`: what a crash may cost.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Delivery {
    /// A crash between a blob's commit and its offset writes the interval again.
    AtLeastOnce,
}

/// `[memory]`.
#[derive(Debug, Clone, PartialEq)]
pub struct Memory {
    /// `budget`: bytes that records in flight may hold; default 512 MiB.
    pub budget: u64,
}

/// `[http]`.
#[derive(Debug, Clone, PartialEq)]
pub struct Http {
    /// `listen`; default 127.0.0.1:9464.
    pub listen: SocketAddr,
}

/// `[deadlines]`.
#[derive(Debug, Clone, PartialEq)]
pub struct Deadlines {
    /// `revoke`; default 10 s.
    pub revoke: Duration,
    /// `shutdown`; default 25 s.
    pub shutdown: Duration,
}

/// `[flush]`, merged with the feed's own.
#[derive(Debug, Clone, PartialEq)]
pub struct Flush {
    /// `interval`: age of the oldest record not committed at which a partition is flushed; default 60 s.
    pub interval: Duration,
    /// `max_commit_size`: encoded bytes in open and sealed blobs of a partition at which it is flushed; default 1 GiB.
    pub max_commit_size: u64,
    /// `max_blob_size`: bytes at which a blob is sealed; default 256 MiB.
    pub max_blob_size: u64,
    /// `max_block_size`: bytes at which a block is cut; default 8 MiB.
    pub max_block_size: u64,
    /// `max_records_per_blob`; default unlimited.
    pub max_records_per_blob: Option<u64>,
    /// `max_blocks_per_blob`; default 50,000, Azure's limit.
    pub max_blocks_per_blob: u32,
    /// `max_open_blobs` per partition; default 64.
    pub max_open_blobs: usize,
}

/// `[feeds.<name>]`.
#[derive(Debug, Clone, PartialEq)]
pub struct Feed {
    /// The feed's name in the plan.
    pub name: Arc<str>,
    /// `topics`, in the order of the plan.
    pub topics: Vec<Arc<str>>,
    /// `start`.
    pub start: Start,
    /// `container`, `stream`, `partition`, `suffix`: where records go.
    pub target: Target,
    /// `format`.
    pub format: Format,
    /// `flush`.
    pub flush: Flush,
    /// `delivery.mode`.
    pub delivery: Delivery,
}

/// Where a feed's records go. `{topic}` and `{partition}` may stand in `stream` and `partition`.
#[derive(Debug, Clone, PartialEq)]
pub struct Target {
    /// `container`.
    pub container: Arc<str>,
    /// `stream`.
    pub stream: Template,
    /// `partition`; empty leaves the partition out of names.
    pub partition: Template,
    /// `suffix`: eight random hex digits at the end of each name; default true.
    pub suffix: bool,
}

impl Target {
    /// A name as blobs of this topic partition have it.
    pub fn example(&self, topic: &str, partition: i32) -> String {
        let mut name = self.stream.render(topic, partition);
        let part = self.partition.render(topic, partition);
        if !part.is_empty() {
            name.push('/');
            name.push_str(&part);
        }
        let suffix = if self.suffix { "-5f0c2a9e" } else { "" };
        format!("{name}/2026/01/31/23/59-58{suffix}.avro")
    }
}

/// Where a feed starts when no offset is known.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Start {
    /// At the oldest record.
    Earliest,
    /// Behind the newest record at the time of the first assignment.
    Latest,
    /// At the first record with this timestamp or a later one.
    At(SystemTime),
}

/// What is read and what is written.
#[derive(Debug, Clone, PartialEq)]
pub struct Format {
    /// `input`.
    pub input: Input,
    /// `output`.
    pub output: Output,
}

/// `format.input`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Input {
    /// `avro`: in Confluent framing, the schema by id from the registry.
    ConfluentAvro,
}

/// `format.output`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Output {
    /// `avro`: an object container file.
    Avro(Codec),
}

/// `format.codec`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Codec {
    /// `null`.
    Null,
    /// `deflate`, with `format.level` 1 to 9; default 6.
    Deflate(u32),
    /// `snappy`.
    Snappy,
    /// `zstandard`, with `format.level` 1 to 19; default 1.
    Zstandard(i32),
}

/// Text with `{topic}` and `{partition}` in it, already checked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Template(String);

impl Template {
    /// `text` as a template; the loader checks its placeholders before.
    pub fn new(text: impl Into<String>) -> Template {
        Template(text.into())
    }

    /// The template as the plan has it.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The text for one topic partition.
    pub fn render(&self, topic: &str, partition: i32) -> String {
        // One pass: a topic named `{partition}` must not be expanded again.
        let mut out = String::with_capacity(self.0.len() + topic.len());
        let mut rest = self.0.as_str();
        while let Some(at) = rest.find('{') {
            let (head, tail) = rest.split_at(at);
            out.push_str(head);
            if let Some(after) = tail.strip_prefix("{topic}") {
                out.push_str(topic);
                rest = after;
            } else if let Some(after) = tail.strip_prefix("{partition}") {
                out.push_str(&partition.to_string());
                rest = after;
            } else {
                out.push('{');
                rest = &tail[1..];
            }
        }
        out.push_str(rest);
        out
    }
}
