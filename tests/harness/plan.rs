//! Plans as text.

use super::{Topic, azurite, servers, zookeeper};

/// A plan of one feed. Fields are TOML where they say so; tests change what they are about.
#[derive(Debug, Clone)]
pub(crate) struct Plan {
    pub(crate) name: String,
    pub(crate) bootstrap: String,
    /// Keys of `[kafka]` besides the servers and the properties, as TOML.
    pub(crate) kafka: String,
    /// librdkafka's.
    pub(crate) properties: Vec<(String, String)>,
    pub(crate) registry: String,
    /// The keys of `[store]`, as TOML.
    pub(crate) store: String,
    /// The keys of `[offset_storage]`, as TOML.
    pub(crate) offsets: String,
    /// The keys of `[flush]`, as TOML.
    pub(crate) flush: String,
    /// Further sections, as TOML.
    pub(crate) more: String,
    pub(crate) listen: String,
    pub(crate) feed: String,
    pub(crate) topics: Vec<String>,
    pub(crate) container: String,
    pub(crate) stream: String,
    pub(crate) partition: String,
    pub(crate) start: String,
    /// Further keys of the feed, as TOML.
    pub(crate) feed_more: String,
}

impl Plan {
    /// A plan that copies `topic` to a container called like the plan.
    pub(crate) fn new(name: &str, topic: &Topic) -> Plan {
        let pairs = [("session.timeout.ms", "6000"), ("heartbeat.interval.ms", "1000")];
        Plan {
            name: name.to_owned(),
            bootstrap: topic.bootstrap.clone(),
            kafka: String::new(),
            // A member that is killed is missed after six seconds, not 45.
            properties: pairs.map(|(name, value)| (name.to_owned(), value.to_owned())).to_vec(),
            registry: servers::registry(),
            store: Plan::azure(&servers::azurite()),
            offsets: Plan::zookeeper(&servers::zookeeper(), &zookeeper::root_of(name)),
            flush: "interval = \"1s\"".to_owned(),
            more: String::new(),
            // The port is read from the log.
            listen: "127.0.0.1:0".to_owned(),
            feed: "flights".to_owned(),
            topics: vec![topic.name.clone()],
            container: name.to_owned(),
            stream: "departures".to_owned(),
            partition: "partition-{partition}".to_owned(),
            start: "earliest".to_owned(),
            feed_more: String::new(),
        }
    }

    /// `[store]` for Azurite at `endpoint`. The key comes from the environment.
    pub(crate) fn azure(endpoint: &str) -> String {
        // Azurite answers 500 to CRC-64, so blocks are sent with MD5.
        format!(
            "type = \"azure\"\naccount = \"{}\"\nendpoint = \"{endpoint}\"\nchecksum = \"md5\"\n\
             credential = {{ type = \"shared_key\", key = \"${{env:AZURE_STORAGE_KEY}}\" }}",
            azurite::ACCOUNT
        )
    }

    /// `[store]` for a folder.
    pub(crate) fn directory(path: &std::path::Path) -> String {
        format!("type = \"directory\"\npath = {path:?}")
    }

    /// `[offset_storage]` for ZooKeeper.
    pub(crate) fn zookeeper(connect: &str, root: &str) -> String {
        format!("type = \"zookeeper\"\nconnect = \"{connect}\"\nroot = \"{root}\"")
    }

    /// `[offset_storage]` for a file.
    pub(crate) fn file(path: &std::path::Path) -> String {
        format!("type = \"file\"\npath = {path:?}")
    }

    /// The consumer group of the plan.
    pub(crate) fn group(&self) -> String {
        format!("blobfeed-{}", self.name)
    }

    /// The root of its offsets, unless the test has chosen another.
    pub(crate) fn root(&self) -> String {
        zookeeper::root_of(&self.name)
    }

    /// The file's text.
    pub(crate) fn toml(&self) -> String {
        let quote = |text: &String| format!("{text:?}");
        let properties: Vec<String> =
            self.properties.iter().map(|(name, value)| format!("{name:?} = {value:?}")).collect();
        let topics: Vec<String> = self.topics.iter().map(quote).collect();
        format!(
            r#"name = "{name}"

[kafka]
bootstrap_servers = "{bootstrap}"
properties = {{ {properties} }}
{kafka}

[schema_registry]
url = "{registry}"

[store]
{store}

[offset_storage]
{offsets}

[flush]
{flush}

[http]
listen = "{listen}"

{more}

[feeds.{feed}]
topics = [{topics}]
container = "{container}"
stream = "{stream}"
partition = "{partition}"
start = "{start}"
{feed_more}
"#,
            name = self.name,
            bootstrap = self.bootstrap,
            properties = properties.join(", "),
            kafka = self.kafka,
            registry = self.registry,
            store = self.store,
            offsets = self.offsets,
            flush = self.flush,
            listen = self.listen,
            more = self.more,
            feed = self.feed,
            topics = topics.join(", "),
            container = self.container,
            stream = self.stream,
            partition = self.partition,
            start = self.start,
            feed_more = self.feed_more,
        )
    }
}
