//! Offsets as they lie in ZooKeeper, read without blobfeed.

use std::collections::BTreeMap;
use std::time::Duration;

use zookeeper_client as zk;

use super::servers;

/// Where the plan called `name` keeps its offsets, unless a test says otherwise.
pub(crate) fn root_of(name: &str) -> String {
    format!("/blobfeed-tests/{name}")
}

/// A session of its own.
pub(crate) struct Reader {
    client: zk::Client,
}

impl Reader {
    pub(crate) async fn connect() -> Reader {
        let address = servers::zookeeper();
        let connector = zk::Client::connector().with_session_timeout(Duration::from_secs(30));
        let client =
            connector.connect(&address).await.unwrap_or_else(|e| panic!("ZooKeeper at {address}: {e}"));
        Reader { client }
    }

    /// The text of the node at `path`.
    pub(crate) async fn data(&self, path: &str) -> Option<String> {
        match self.client.get_data(path).await {
            Ok((data, _)) => Some(String::from_utf8(data).expect("offsets are text")),
            Err(zk::Error::NoNode) => None,
            Err(error) => panic!("{path}: {error}"),
        }
    }

    /// Names and texts of the nodes right below `root`; none when there is no such node.
    pub(crate) async fn children(&self, root: &str) -> BTreeMap<String, String> {
        let names = match self.client.list_children(root).await {
            Ok(names) => names,
            Err(zk::Error::NoNode) => Vec::new(),
            Err(error) => panic!("{root}: {error}"),
        };
        let mut found = BTreeMap::new();
        for name in names {
            if let Some(data) = self.data(&format!("{root}/{name}")).await {
                found.insert(name, data);
            }
        }
        found
    }

    /// The offsets of a plan with one feed of one topic, by partition: nodes `<plan>-<feed>-<n>` below `root`.
    pub(crate) async fn offsets(&self, root: &str, plan: &str, feed: &str) -> BTreeMap<i32, i64> {
        let prefix = format!("{}-{}-", escape(plan), escape(feed));
        let mut offsets = BTreeMap::new();
        for (name, data) in self.children(root).await {
            if let Some(partition) = name.strip_prefix(&prefix) {
                let partition = partition.parse().unwrap_or_else(|_| panic!("{root}/{name}: no partition"));
                offsets.insert(partition, data.parse().unwrap_or_else(|_| panic!("{root}/{name}: {data:?}")));
            }
        }
        offsets
    }

    /// Sets the node at `path`, which must exist.
    pub(crate) async fn set(&self, path: &str, data: &str) {
        let set = self.client.set_data(path, data.as_bytes(), None).await;
        set.unwrap_or_else(|error| panic!("{path}: {error}"));
    }

    /// Deletes `root` and what is below it.
    pub(crate) async fn delete_tree(&self, root: &str) {
        for name in self.children(root).await.into_keys() {
            let path = format!("{root}/{name}");
            match self.client.delete(&path, None).await {
                Ok(()) | Err(zk::Error::NoNode) => {}
                Err(error) => panic!("{path}: {error}"),
            }
        }
        match self.client.delete(root, None).await {
            Ok(()) | Err(zk::Error::NoNode) => {}
            Err(error) => panic!("{root}: {error}"),
        }
    }
}

/// A name as the layout spells it.
pub(crate) fn escape(name: &str) -> String {
    name.replace('%', "%25").replace('-', "%2D").replace('/', "%2F")
}
