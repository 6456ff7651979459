//! A store in this process's memory, for tests and experiments; it loses everything with the process.
//!
//! Owns: staged and committed blobs, the conditions, dates and errors that Azure has, and faults on demand.
//! Does not own: anything that outlives the process.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};

use async_trait::async_trait;
use bytes::{Bytes, BytesMut};

use super::{BlobStore, BlockList, Condition, Error, Page, Properties, Written, rules};
use crate::model::{BlobHeaders, BlobName, BlobRef, BlockContent, BlockId, Metadata};

/// Blocks that are not committed for so long are forgotten, as Azure does.
const BLOCK_LIFE: Duration = Duration::from_secs(7 * 24 * 3600);

/// What a call is about to do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Operation {
    /// Which call.
    pub kind: OperationKind,
    /// On which container.
    pub container: String,
    /// On which blob; `None` for calls on containers.
    pub blob: Option<BlobName>,
    /// Calls to this store before this one.
    pub number: u64,
}

/// The calls of [`BlobStore`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[expect(missing_docs, reason = "each is named like the call")]
pub enum OperationKind {
    EnsureContainer,
    StageBlock,
    CommitBlockList,
    Put,
    Properties,
    Read,
    List,
    Delete,
}

/// What goes wrong with a call.
#[derive(Debug)]
pub enum Fault {
    /// The call fails and nothing happens.
    Before(Error),
    /// The store acts, and the reply is lost: the caller gets this error.
    After(Error),
    /// The caller gets this error at once; the store acts when [`MemoryStore::deliver_late`] is called.
    Late(Error),
    /// The request takes so long to arrive. A caller that gives up meanwhile has prevented it.
    Delay(Duration),
    /// The store acts and the reply takes so long. A caller that gives up meanwhile has prevented nothing.
    SlowReply(Duration),
}

/// Decides for each call whether it meets a fault.
pub type Faults = Arc<dyn Fn(&Operation) -> Option<Fault> + Send + Sync>;

/// The clock that answers are dated with.
pub type Clock = Arc<dyn Fn() -> SystemTime + Send + Sync>;

/// Containers in memory. Cloning shares them.
///
/// Calls never wait, except as a [`Fault`] says; then it is tokio's time, so tests may pause it.
#[derive(Clone)]
pub struct MemoryStore {
    shared: Arc<Mutex<State>>,
    faults: Option<Faults>,
    clock: Clock,
    page_size: usize,
}

type Late = Box<dyn FnOnce(&mut State, SystemTime) + Send>;

#[derive(Default)]
struct State {
    containers: BTreeMap<String, Container>,
    late: Vec<Late>,
    calls: u64,
    versions: u64,
}

#[derive(Default)]
struct Container {
    blobs: BTreeMap<BlobName, Blob>,
    staged: BTreeMap<BlobName, BTreeMap<BlockId, Staged>>,
}

struct Blob {
    chunks: Vec<Bytes>,
    len: u64,
    etag: String,
    headers: BlobHeaders,
    metadata: Metadata,
}

struct Staged {
    content: BlockContent,
    at: SystemTime,
}

impl Default for MemoryStore {
    fn default() -> MemoryStore {
        MemoryStore::new()
    }
}

impl MemoryStore {
    /// An empty store without faults, with the system's clock and Azure's page size.
    pub fn new() -> MemoryStore {
        MemoryStore {
            shared: Arc::default(),
            faults: None,
            clock: Arc::new(SystemTime::now),
            page_size: 5_000,
        }
    }

    /// The same store, seen through `faults`. Other clones stay as they are, so that one of two writers can be hit.
    #[must_use]
    pub fn with_faults(
        mut self,
        faults: impl Fn(&Operation) -> Option<Fault> + Send + Sync + 'static,
    ) -> MemoryStore {
        self.faults = Some(Arc::new(faults));
        self
    }

    /// The same store with another clock.
    #[must_use]
    pub fn with_clock(mut self, clock: impl Fn() -> SystemTime + Send + Sync + 'static) -> MemoryStore {
        self.clock = Arc::new(clock);
        self
    }

    /// The same store with so many names on a page of a listing.
    #[must_use]
    pub fn with_page_size(mut self, names: usize) -> MemoryStore {
        self.page_size = names.max(1);
        self
    }

    /// Lets everything happen that [`Fault::Late`] kept back, in the order of the calls; says how much that was.
    pub fn deliver_late(&self) -> usize {
        let now = (self.clock)();
        let mut state = self.state();
        let late = std::mem::take(&mut state.late);
        let count = late.len();
        for act in late {
            act(&mut state, now);
        }
        count
    }

    /// Removes a container and all that is in it, as somebody else may.
    pub fn remove_container(&self, container: &str) {
        self.state().containers.remove(container);
    }

    /// Ids of the blocks that are staged for `blob`, ascending.
    pub fn staged_blocks(&self, blob: &BlobRef) -> Vec<BlockId> {
        let state = self.state();
        let staged = state.containers.get(&*blob.container).and_then(|c| c.staged.get(&blob.name));
        staged.map(|blocks| blocks.keys().cloned().collect()).unwrap_or_default()
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // A panic in a test's hook is the test's failure, not ours.
        self.shared.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn call<T: Send + 'static>(
        &self,
        kind: OperationKind,
        container: &str,
        blob: Option<&BlobName>,
        act: impl FnOnce(&mut State, SystemTime) -> Result<T, Error> + Send + 'static,
    ) -> Result<T, Error> {
        let number = {
            let mut state = self.state();
            state.calls += 1;
            state.calls - 1
        };
        let operation = Operation { kind, container: container.to_owned(), blob: blob.cloned(), number };
        let fault = self.faults.as_ref().and_then(|faults| faults(&operation));
        match fault {
            None => act(&mut self.state(), (self.clock)()),
            Some(Fault::Before(error)) => Err(error),
            Some(Fault::After(error)) => {
                // What the store would have answered is lost, whatever it was.
                let _ = act(&mut self.state(), (self.clock)());
                Err(error)
            }
            Some(Fault::Late(error)) => {
                self.state().late.push(Box::new(move |state, now| drop(act(state, now))));
                Err(error)
            }
            Some(Fault::Delay(wait)) => {
                tokio::time::sleep(wait).await;
                act(&mut self.state(), (self.clock)())
            }
            Some(Fault::SlowReply(wait)) => {
                let reply = act(&mut self.state(), (self.clock)());
                tokio::time::sleep(wait).await;
                reply
            }
        }
    }
}

impl State {
    fn container(&mut self, name: &str) -> Result<&mut Container, Error> {
        self.containers.get_mut(name).ok_or_else(|| Error::ContainerNotFound { container: name.to_owned() })
    }

    fn next_etag(&mut self) -> String {
        self.versions += 1;
        format!("\"0x{:016X}\"", self.versions)
    }

    fn write(
        &mut self,
        at: &BlobRef,
        condition: &Condition,
        now: SystemTime,
        make: impl FnOnce(&mut Container, String) -> Result<Blob, Error>,
    ) -> Result<Written, Error> {
        let etag = self.next_etag();
        let container = self.container(&at.container)?;
        let present = container.blobs.get(&at.name).map(|blob| blob.etag.as_str());
        super::admit(at, condition, present)?;
        let blob = make(container, etag.clone())?;
        container.blobs.insert(at.name.clone(), blob);
        container.staged.remove(&at.name);
        Ok(Written { etag, date: now })
    }
}

#[async_trait]
impl BlobStore for MemoryStore {
    async fn ensure_container(&self, container: &str, create: bool) -> Result<(), Error> {
        rules::container(container)?;
        let name = container.to_owned();
        self.call(OperationKind::EnsureContainer, container, None, move |state, _| {
            if create {
                state.containers.entry(name).or_default();
                return Ok(());
            }
            state.container(&name).map(drop)
        })
        .await
    }

    async fn stage_block(
        &self,
        blob: &BlobRef,
        id: &BlockId,
        content: &BlockContent,
    ) -> Result<Written, Error> {
        rules::block(blob, content)?;
        // A copy: the sender's buffers are counted until they are dropped, and this store never drops them.
        let (at, id, content) = (blob.clone(), id.clone(), BlockContent::from(content.to_vec()));
        self.call(OperationKind::StageBlock, &blob.container, Some(&blob.name), move |state, now| {
            let staged = state.container(&at.container)?.staged.entry(at.name).or_default();
            staged.insert(id, Staged { content, at: now });
            Ok(Written { etag: String::new(), date: now })
        })
        .await
    }

    async fn commit_block_list(&self, blob: &BlobRef, list: &BlockList) -> Result<Written, Error> {
        rules::block_list(blob, list)?;
        let (at, list) = (blob.clone(), list.clone());
        self.call(OperationKind::CommitBlockList, &blob.container, Some(&blob.name), move |state, now| {
            state.write(&at, &list.condition, now, |container, etag| {
                let none = BTreeMap::new();
                let staged = container.staged.get(&at.name).unwrap_or(&none);
                let mut chunks = Vec::new();
                let mut len = 0;
                for id in &list.blocks {
                    let live = staged
                        .get(id)
                        .filter(|block| now.duration_since(block.at).unwrap_or_default() < BLOCK_LIFE);
                    let block = live.ok_or_else(|| Error::UnknownBlock { blob: at.to_string() })?;
                    chunks.extend_from_slice(block.content.chunks());
                    len += block.content.len() as u64;
                }
                Ok(Blob { chunks, len, etag, headers: list.headers, metadata: list.metadata })
            })
        })
        .await
    }

    async fn put(
        &self,
        blob: &BlobRef,
        content: Bytes,
        headers: &BlobHeaders,
        metadata: &Metadata,
        condition: &Condition,
    ) -> Result<Written, Error> {
        rules::metadata("Put Blob", blob, metadata)?;
        let at = blob.clone();
        let (headers, metadata, condition) = (headers.clone(), metadata.clone(), condition.clone());
        self.call(OperationKind::Put, &blob.container, Some(&blob.name), move |state, now| {
            state.write(&at, &condition, now, |_, etag| {
                Ok(Blob { len: content.len() as u64, chunks: vec![content], etag, headers, metadata })
            })
        })
        .await
    }

    async fn properties(&self, blob: &BlobRef) -> Result<Option<Properties>, Error> {
        let at = blob.clone();
        self.call(OperationKind::Properties, &blob.container, Some(&blob.name), move |state, now| {
            let blob = state.container(&at.container)?.blobs.get(&at.name);
            Ok(blob.map(|blob| Properties {
                etag: blob.etag.clone(),
                len: blob.len,
                headers: blob.headers.clone(),
                metadata: blob.metadata.clone(),
                date: now,
            }))
        })
        .await
    }

    async fn read(&self, blob: &BlobRef, from: u64, max: u64) -> Result<Option<Bytes>, Error> {
        let at = blob.clone();
        self.call(OperationKind::Read, &blob.container, Some(&blob.name), move |state, _| {
            let blob = state.container(&at.container)?.blobs.get(&at.name);
            Ok(blob.map(|blob| slice(&blob.chunks, from, max)))
        })
        .await
    }

    async fn list(&self, container: &str, prefix: &str, page: Option<&str>) -> Result<Page, Error> {
        let (name, prefix, size) = (container.to_owned(), prefix.to_owned(), self.page_size);
        let start = page.map(str::to_owned);
        self.call(OperationKind::List, container, None, move |state, _| {
            let blobs = &state.container(&name)?.blobs;
            // A page is named after its first name, which is a name of ours; anything else is not a page.
            let start = start.map(BlobName::new).transpose().map_err(|_| Error::Refused {
                operation: "List Blobs",
                resource: name,
                status: 400,
                code: "OutOfRangeInput".to_owned(),
                message: "there is no such page".to_owned(),
            })?;
            let from = start.map_or(Bound::Unbounded, Bound::Included);
            let mut names = blobs
                .range((from, Bound::Unbounded))
                .map(|(name, _)| name)
                .filter(|name| name.as_str().starts_with(&prefix))
                .cloned();
            let page = names.by_ref().take(size).collect();
            Ok(Page { names: page, next: names.next().map(|name| name.as_str().to_owned()) })
        })
        .await
    }

    async fn delete(&self, blob: &BlobRef) -> Result<(), Error> {
        let at = blob.clone();
        self.call(OperationKind::Delete, &blob.container, Some(&blob.name), move |state, _| {
            state.container(&at.container)?.blobs.remove(&at.name);
            Ok(())
        })
        .await
    }
}

/// Bytes `[from, from + max)` of what `chunks` make.
fn slice(chunks: &[Bytes], from: u64, max: u64) -> Bytes {
    let mut skip = usize::try_from(from).unwrap_or(usize::MAX);
    let mut want = usize::try_from(max).unwrap_or(usize::MAX);
    let mut parts = Vec::new();
    for chunk in chunks {
        if want == 0 {
            break;
        }
        let start = skip.min(chunk.len());
        let end = start.saturating_add(want).min(chunk.len());
        skip -= start;
        want -= end - start;
        if end > start {
            parts.push(chunk.slice(start..end));
        }
    }
    if parts.len() == 1 {
        return parts.remove(0);
    }
    let mut joined = BytesMut::with_capacity(parts.iter().map(Bytes::len).sum());
    for part in &parts {
        joined.extend_from_slice(part);
    }
    joined.freeze()
}

#[cfg(test)]
mod tests;
