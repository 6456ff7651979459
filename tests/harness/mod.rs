//! What the tests on real servers share: a case of its own names, its topics and plans, the connector as a child
//! process, and readers that share no code with it.
//!
//! Owns: everything outside the connector.
//! Does not own: what is expected; that stands in the tests.
//!
//! Each case has names that nobody else has, so that tests run beside each other and beside whatever else the servers
//! hold. A case that ends well removes what it made; one that fails leaves it for whoever looks into it.

// Each target uses another part of this.
#![allow(dead_code)]

pub(crate) mod avro;
pub(crate) mod azurite;
pub(crate) mod connector;
pub(crate) mod discard;
pub(crate) mod flights;
pub(crate) mod gate;
pub(crate) mod http1;
pub(crate) mod kafka;
pub(crate) mod plan;
pub(crate) mod private;
pub(crate) mod python;
pub(crate) mod records;
pub(crate) mod registry;
pub(crate) mod servers;
pub(crate) mod store_proxy;
pub(crate) mod wait;
pub(crate) mod zookeeper;

use std::path::{Path, PathBuf};

pub(crate) use azurite::Blob;
pub(crate) use connector::{Connector, Exit};
pub(crate) use kafka::Topic;
pub(crate) use plan::Plan;
pub(crate) use wait::eventually;

/// How long anything may take that should happen soon. Generous, since nothing waits longer than it must.
pub(crate) const SOON: std::time::Duration = std::time::Duration::from_secs(60);

/// One test: its names, its folder, what it made on the servers.
pub(crate) struct Case {
    /// Ends in digits that no other case has; fits everywhere, containers included.
    pub(crate) name: String,
    folder: tempfile::TempDir,
    topics: Vec<Topic>,
    plans: Vec<Plan>,
}

impl Case {
    /// A case called `what`.
    ///
    /// # Panics
    /// When a server does not answer.
    pub(crate) async fn new(what: &str) -> Case {
        servers::demand().await;
        let name = format!("{what}-{:08x}", rand::random::<u32>());
        let folder = tempfile::Builder::new().prefix(&name).tempdir().expect("a temporary folder");
        Case { name, folder, topics: Vec::new(), plans: Vec::new() }
    }

    /// A folder or file of the case.
    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// The folder of the case.
    pub(crate) fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// Makes a topic.
    pub(crate) async fn topic(&mut self, partitions: i32) -> Topic {
        let name = match self.topics.len() {
            0 => self.name.clone(),
            more => format!("{}-{more}", self.name),
        };
        let topic = Topic::create(&name, partitions).await;
        self.topics.push(topic.clone());
        topic
    }

    /// A plan that copies `topic` to Azurite, with offsets in ZooKeeper; its name is the case's.
    pub(crate) fn plan(&mut self, topic: &Topic) -> Plan {
        self.plan_named(&self.name.clone(), topic)
    }

    /// The same under another name, and so with another group, container and set of offsets.
    pub(crate) fn plan_named(&mut self, name: &str, topic: &Topic) -> Plan {
        let plan = Plan::new(name, topic);
        self.plans.push(plan.clone());
        plan
    }

    /// A plan of which nothing will be left on the servers.
    pub(crate) fn plan_unlisted(&self, topic: &Topic) -> Plan {
        Plan::new(&self.name, topic)
    }

    /// Writes `plan` into the case's folder, in one step: a connector may be reading the file.
    pub(crate) fn write(&self, plan: &Plan) -> PathBuf {
        let path = self.path(&format!("{}.toml", plan.name));
        let new = path.with_extension("new");
        std::fs::write(&new, plan.toml()).expect("a plan can be written");
        std::fs::rename(&new, &path).expect("a file can be renamed");
        path
    }

    /// Starts `blobfeed run` with `plan`.
    pub(crate) fn run(&self, plan: &Plan) -> Connector {
        Connector::start(self.folder(), &self.write(plan), &[])
    }

    /// Starts `blobfeed run --until-end` with `plan`.
    pub(crate) fn run_until_end(&self, plan: &Plan) -> Connector {
        Connector::start(self.folder(), &self.write(plan), &["--until-end"])
    }

    /// Runs `plan` to the ends of its topics, which must succeed.
    pub(crate) async fn copy(&self, plan: &Plan) -> Exit {
        let exit = self.run_until_end(plan).exit(3 * SOON).await;
        assert_eq!(exit.code, Some(0), "run --until-end: {}", exit.tail());
        exit
    }

    /// Downloads the container of `plan` into a folder of the case, anew each time.
    pub(crate) async fn download(&self, plan: &Plan) -> Vec<Blob> {
        let folder = self.path(&format!("blobs-{:08x}", rand::random::<u32>()));
        azurite::download(&plan.container, &folder).await
    }

    /// Removes what the case made on the servers.
    pub(crate) async fn finish(self) {
        let reader = zookeeper::Reader::connect().await;
        for plan in &self.plans {
            azurite::delete(&plan.container).await;
            kafka::delete_group(&plan.group()).await;
            reader.delete_tree(&plan.root()).await;
        }
        for topic in &self.topics {
            topic.delete().await;
        }
    }
}

impl Drop for Case {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.folder.disable_cleanup(true);
            eprintln!("plans, logs and blobs of the case are kept in {}", self.folder.path().display());
        }
    }
}
