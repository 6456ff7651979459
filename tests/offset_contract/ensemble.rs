//! The real server, and a root of its own for each test.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use blobfeed::model::FeedPartitionKey;
use blobfeed::offset::{Error, PersistOffset, SharedOffsets, ZookeeperOffsets};
use blobfeed::plan;
use futures::FutureExt;
use zookeeper_client::{Acls, Client, CreateMode, CreateOptions};

pub(crate) const OPEN: CreateOptions<'static> = CreateMode::Persistent.with_acls(Acls::anyone_all());

/// A root in the real server, and a client that has nothing to do with ours.
pub(crate) struct Ensemble {
    pub(crate) address: String,
    pub(crate) root: String,
    pub(crate) raw: Client,
}

/// Runs `test` with a root of its own, and removes the root whatever happens.
pub(crate) async fn with_ensemble<F: Future<Output = ()>>(test: impl FnOnce(Arc<Ensemble>) -> F) {
    let address = std::env::var("BLOBFEED_TEST_ZOOKEEPER").unwrap_or_else(|_| "127.0.0.1:2181".to_owned());
    let connector = Client::connector().with_session_timeout(Duration::from_secs(10));
    let raw = tokio::time::timeout(Duration::from_secs(15), connector.connect(&address))
        .await
        .ok()
        .and_then(Result::ok)
        .unwrap_or_else(|| panic!("no ZooKeeper answers at {address}; set BLOBFEED_TEST_ZOOKEEPER"));
    let top = format!("/blobfeed-test-{:016x}", rand::random::<u64>());
    let ensemble = Arc::new(Ensemble { address, root: format!("{top}/offset"), raw: raw.clone() });
    let outcome = AssertUnwindSafe(test(ensemble)).catch_unwind().await;
    remove(&raw, &top).await;
    if let Err(panic) = outcome {
        std::panic::resume_unwind(panic);
    }
}

async fn remove(raw: &Client, path: &str) {
    let mut left = vec![path.to_owned()];
    while let Some(path) = left.pop() {
        match raw.list_children(&path).await {
            Ok(children) if children.is_empty() => raw.delete(&path, None).await.unwrap(),
            Ok(children) => {
                left.push(path.clone());
                left.extend(children.iter().map(|child| format!("{path}/{child}")));
            }
            Err(_) => {}
        }
    }
}

impl Ensemble {
    /// An instance as another process would open it.
    pub(crate) fn open(&self) -> SharedOffsets {
        self.open_at(&self.address, Duration::from_secs(10))
    }

    pub(crate) fn open_at(&self, connect: &str, session_timeout: Duration) -> SharedOffsets {
        let section =
            plan::Zookeeper { connect: connect.to_owned(), root: self.root.clone(), session_timeout };
        Arc::new(ZookeeperOffsets::new(&section).unwrap())
    }

    /// The node of [`entry`]`(id, _)`.
    pub(crate) fn node(&self, id: &str) -> String {
        format!("{}/plan-feed-{id}", self.root)
    }

    /// What is at the node of `id`, and how often it was written since it was made.
    pub(crate) async fn stored(&self, id: &str) -> Option<(String, i32)> {
        let (data, stat) = self.raw.get_data(&self.node(id)).await.ok()?;
        Some((String::from_utf8(data).unwrap(), stat.version))
    }

    /// Waits until the node of `id` holds `offset`.
    pub(crate) async fn wait_for(&self, id: &str, offset: &str) {
        let arrived = async {
            while self.stored(id).await.is_none_or(|(stored, _)| stored != offset) {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        tokio::time::timeout(Duration::from_secs(10), arrived).await.expect("the server got it");
    }
}

pub(crate) fn entry(id: &str, offset: &str) -> PersistOffset {
    let key = FeedPartitionKey { plan: "plan".into(), feed: "feed".into(), id: id.into() };
    PersistOffset { key, offset: offset.to_owned() }
}

pub(crate) async fn persist(storage: &SharedOffsets, id: &str, offset: &str) -> Result<(), Error> {
    storage.persist_offsets(&[entry(id, offset)]).await.remove(0)
}

#[track_caller]
pub(crate) fn assert_conflict(result: &Result<(), Error>, stored: Option<&str>) {
    match result {
        Err(Error::Conflict { stored: found, .. }) => assert_eq!(found.as_deref(), stored),
        other => panic!("a conflict with {stored:?} was due, not {other:?}"),
    }
}

#[track_caller]
pub(crate) fn assert_unavailable(result: &Result<(), Error>) {
    assert!(matches!(result, Err(Error::Unavailable { .. })), "{result:?}");
}
