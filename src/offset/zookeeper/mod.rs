//! Offsets in ZooKeeper, in the layout of Teknek's OffsetStorage.
//!
//! Owns: one node per entry, `<root>/<plan>-<feed>-<partition id>`, whose data is the offset and nothing else.
//! Does not own: the session (see [`session`]), names (see [`path`]), requests for many entries (see [`batch`]).
//! Crash: a batch is several requests, each of which ZooKeeper applies whole or not at all.
//!
//! Every write is conditioned on the version seen last. ZooKeeper counts versions from the creation of a node, so a
//! node that somebody removes and makes again can have the version that we know; a read tells by the value, a write
//! does not. Nobody but an operator removes nodes.

mod batch;
mod path;
mod session;

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use futures::future::BoxFuture;
use futures::{FutureExt, StreamExt};
use tokio::sync::OwnedMutexGuard;
use zookeeper_client::Error as ZkError;

use self::batch::{Group, Item};
use self::path::Place;
use self::session::{Failure, Session};
use super::ledger::Ledger;
use super::{Error, OffsetStorage, PersistOffset, check_offset};
use crate::model::FeedPartitionKey;
use crate::plan;

/// Requests of one batch that are on their way at the same time.
const CONCURRENT_REQUESTS: usize = 4;
/// Nodes that are read at once.
const READS: usize = 500;

/// Offsets in ZooKeeper. Connects with the first call, and again whenever its session has ended.
///
/// A call takes as long as the session's time-out, and 10 s at most; then it fails as [`Error::Unavailable`]. A call
/// may be dropped: what it has sent is recognised by the next one.
pub struct ZookeeperOffsets {
    place: Place,
    session: Session,
    ledger: Ledger<i32>,
    turns: Turns,
}

impl ZookeeperOffsets {
    /// Offsets under the root that `section` names; nothing is contacted yet.
    ///
    /// # Errors
    /// [`Error::Configuration`] when an address, a node or the time-out cannot be one.
    pub fn new(section: &plan::Zookeeper) -> Result<ZookeeperOffsets, Error> {
        let timeout = section.session_timeout;
        if !(Duration::from_secs(1)..=Duration::from_secs(3600)).contains(&timeout) {
            let reason = format!("session_timeout is {timeout:?}; one second to one hour is possible");
            return Err(Error::Configuration { reason });
        }
        let place = Place::new(&section.connect, &section.root)?;
        let session = Session::new(place.hosts.clone(), place.root.clone(), timeout);
        Ok(ZookeeperOffsets { place, session, ledger: Ledger::new(), turns: Turns::default() })
    }

    // Keys are distinct.
    async fn persist(&self, batch: &[(usize, &PersistOffset)]) -> Vec<(usize, Result<(), Error>)> {
        let _turns = self.turns.take(batch.iter().map(|(_, entry)| &entry.key)).await;
        let deadline = self.session.deadline();
        let mut results = Vec::with_capacity(batch.len());
        let mut items = Vec::with_capacity(batch.len());
        for (index, entry) in batch {
            match check_offset(entry) {
                Ok(()) => {
                    items.push(Item::new(*index, &entry.key, self.place.node(&entry.key), &entry.offset));
                }
                Err(error) => results.push((*index, Err(error))),
            }
        }
        // Boxed, since a closure that returns a future of a borrow cannot be named here.
        let groups: Vec<BoxFuture<'_, _>> = batch::split(items)
            .into_iter()
            .map(|items| Group::new(self, deadline, items).write().boxed())
            .collect();
        let mut answers = futures::stream::iter(groups).buffer_unordered(CONCURRENT_REQUESTS);
        while let Some(answer) = answers.next().await {
            results.extend(answer);
        }
        results
    }

    async fn children(&self) -> Result<Vec<String>, Failure> {
        let parent = self.place.parent();
        let answer = self.session.ask(self.session.deadline(), |client| async move {
            let sync = client.sync(parent);
            let children = client.list_children(parent);
            sync.await?;
            children.await
        });
        absent_as(Vec::new(), answer.await)
    }

    async fn delete_node(&self, path: &str) -> Result<(), Failure> {
        let answer = self
            .session
            .ask(self.session.deadline(), |client| async move { client.delete(path, None).await });
        absent_as((), answer.await)
    }
}

fn absent_as<T>(nothing: T, answer: Result<T, Failure>) -> Result<T, Failure> {
    match answer {
        Err(Failure::Answered(ZkError::NoNode)) => Ok(nothing),
        answer => answer,
    }
}

#[async_trait]
impl OffsetStorage for ZookeeperOffsets {
    async fn persist_offsets(&self, batch: &[PersistOffset]) -> Vec<Result<(), Error>> {
        let mut results: Vec<_> = batch.iter().map(|_| None).collect();
        let mut rest: Vec<_> = batch.iter().enumerate().collect();
        // Keys are distinct by contract. Were one there twice, the call would wait for itself.
        while !rest.is_empty() {
            let mut keys = HashSet::new();
            let (now, later): (Vec<_>, Vec<_>) =
                rest.into_iter().partition(|(_, entry)| keys.insert(&entry.key));
            for (index, result) in self.persist(&now).await {
                results[index] = Some(result);
            }
            rest = later;
        }
        results
            .into_iter()
            .map(|result| result.expect("each entry is in one group, each group answers"))
            .collect()
    }

    async fn find_latest_persisted_offset(&self, key: &FeedPartitionKey) -> Result<Option<String>, Error> {
        let _turn = self.turns.take(std::iter::once(key)).await;
        let path = self.place.node(key);
        let found = self.session.read(&[path], self.session.deadline()).await;
        let found = found.map_err(|failure| self.session.error(&failure))?.remove(0)?;
        let offset = found.as_ref().map(|found| found.offset.clone());
        self.ledger.note(key, found);
        Ok(offset)
    }

    fn current_offset(&self, key: &FeedPartitionKey) -> Option<String> {
        self.ledger.current(key)
    }

    async fn list(&self, plan: &str) -> Result<Vec<PersistOffset>, Error> {
        let names = self.children().await.map_err(|failure| self.session.error(&failure))?;
        let mut keys: Vec<_> = names.iter().filter_map(|name| self.place.key(name)).collect();
        keys.retain(|key| &*key.plan == plan);
        keys.sort();
        let mut entries = Vec::with_capacity(keys.len());
        for keys in keys.chunks(READS) {
            let paths: Vec<_> = keys.iter().map(|key| self.place.node(key)).collect();
            let found = self.session.read(&paths, self.session.deadline()).await;
            for (key, found) in keys.iter().zip(found.map_err(|failure| self.session.error(&failure))?) {
                // `None` was removed in between.
                if let Some(found) = found? {
                    entries.push(PersistOffset { key: key.clone(), offset: found.offset });
                }
            }
        }
        Ok(entries)
    }

    async fn delete(&self, key: &FeedPartitionKey) -> Result<(), Error> {
        let _turn = self.turns.take(std::iter::once(key)).await;
        let path = self.place.node(key);
        match self.delete_node(&path).await {
            Ok(()) => {
                self.ledger.note(key, None);
                Ok(())
            }
            Err(Failure::Answered(ZkError::NotEmpty)) => {
                Err(self.session.corrupt(&path, "it has children, so it is no entry".to_owned()))
            }
            Err(failure) => {
                self.ledger.forget(key);
                Err(self.session.error(&failure))
            }
        }
    }

    async fn close(&self) {
        self.session.close().await;
    }
}

/// Who works on an entry. Two calls on one entry take turns, so that the ledger hears of its states in order.
#[derive(Default)]
struct Turns {
    turns: Mutex<HashMap<FeedPartitionKey, Arc<tokio::sync::Mutex<()>>>>,
}

impl Turns {
    async fn take<'a>(&self, keys: impl Iterator<Item = &'a FeedPartitionKey>) -> Vec<OwnedMutexGuard<()>> {
        let mut keys: Vec<_> = keys.collect();
        // One order for all, or two calls could wait for each other.
        keys.sort();
        let locks: Vec<_> = {
            let mut turns = self.turns.lock().unwrap_or_else(PoisonError::into_inner);
            keys.into_iter().map(|key| turns.entry(key.clone()).or_default().clone()).collect()
        };
        let mut guards = Vec::with_capacity(locks.len());
        for lock in locks {
            guards.push(lock.lock_owned().await);
        }
        guards
    }
}
