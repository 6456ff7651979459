//! One source of a [`BlobProducer`](super::BlobProducer).
//!
//! Owns: its open blobs, its commit under way, whether it may go on.
//! Does not own: when it is flushed.

use std::collections::HashMap;
use std::sync::{Arc, OnceLock};

use futures::future::{BoxFuture, try_join_all};
use tokio::sync::{Mutex, MutexGuard};

use super::producer::misuse;
use super::{CommitId, CommittedBlob, Error, commit_blob};
use crate::model::{OffsetRange, SealedBlob, Ssp};
use crate::producer::{self as blobs, Destination, OpenBlobs, OutputKey, PendingBlob};
use crate::store::{BlobStore, SharedStore};
use crate::telemetry::{FeedMetrics, Telemetry};

/// Blobs of one source whose Put Block Lists are under way at once.
const COMMITS: usize = 16;

/// Why a source takes no more calls.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum End {
    Failed,
    Stopped,
}

/// A registered source.
pub(super) struct Source {
    pub(super) name: Arc<str>,
    pub(super) metrics: FeedMetrics,
    // Outside of the lock, so that registering anew need not wait for it.
    end: OnceLock<End>,
    state: Mutex<State>,
}

/// What only the holder of the source's lock touches.
pub(super) struct State {
    pub(super) blobs: OpenBlobs,
    /// Committed, and not reported by a flush yet.
    pub(super) committed: Vec<CommittedBlob>,
    // Kept here and not in the caller's future, so that a flush that is given up goes on in the next one.
    committing: Option<BoxFuture<'static, Result<Vec<CommittedBlob>, Error>>>,
    // A failure that no call has reported yet.
    failure: Option<Error>,
    // One set of open blobs serves all partitions of a source, so that their number and their tails are looked at
    // together; a place stands for a partition and an output key in it.
    places: HashMap<Ssp, Vec<(OutputKey, OutputKey)>>,
    next_place: u32,
}

impl Source {
    pub(super) fn new(name: Arc<str>, metrics: FeedMetrics, max_open_blobs: usize) -> Source {
        let state = State {
            blobs: OpenBlobs::new(max_open_blobs),
            committed: Vec::new(),
            committing: None,
            failure: None,
            places: HashMap::new(),
            next_place: 0,
        };
        Source { name, metrics, end: OnceLock::new(), state: Mutex::new(state) }
    }

    pub(super) fn end(&self) -> Option<End> {
        self.end.get().copied()
    }

    /// To be called under the lock only.
    pub(super) fn end_as(&self, end: End) {
        let _ = self.end.set(end);
    }

    /// Waits for the calls before.
    pub(super) async fn lock(&self) -> Result<MutexGuard<'_, State>, Error> {
        let mut state = self.state.lock().await;
        if let Some(failure) = state.failure.take() {
            return Err(self.fail(&mut state, failure));
        }
        match self.end() {
            None => Ok(state),
            Some(End::Failed) => Err(misuse(&self.name, "has failed; register it again and send again")),
            Some(End::Stopped) => Err(Error::Stopped),
        }
    }

    /// The state if no call holds it and the source may go on.
    pub(super) fn try_lock(&self) -> Option<MutexGuard<'_, State>> {
        self.state.try_lock().ok().filter(|state| self.end().is_none() && state.failure.is_none())
    }

    /// Gives everything up and lets no call through any more; gives `error` back.
    pub(super) fn fail(&self, state: &mut State, error: Error) -> Error {
        state.abandon();
        self.end_as(End::Failed);
        error
    }

    /// As [`Source::fail`], reported by the next call.
    pub(super) fn fail_later(&self, state: &mut State, error: Error) {
        state.abandon();
        state.failure = Some(error);
    }
}

impl State {
    /// What the open blobs of the source know `key` of `ssp` by.
    pub(super) fn place(&mut self, ssp: &Ssp, key: OutputKey) -> OutputKey {
        let known = self.places.get(ssp).and_then(|keys| keys.iter().find(|(known, _)| *known == key));
        if let Some((_, place)) = known {
            return *place;
        }
        let place = OutputKey(self.next_place);
        self.next_place += 1;
        self.places.entry(ssp.clone()).or_default().push((key, place));
        place
    }

    /// Seals all open blobs. What is sent from now on goes to others.
    pub(super) fn seal(&mut self) -> Result<Vec<PendingBlob>, blobs::Error> {
        self.places.clear();
        self.next_place = 0;
        self.blobs.seal_all()
    }

    /// Prepares the commit of `sealed`; [`State::finish_commit`] carries it out.
    pub(super) fn begin_commit(
        &mut self,
        store: &SharedStore,
        telemetry: &Telemetry,
        metrics: &FeedMetrics,
        sealed: Vec<PendingBlob>,
    ) {
        let (store, telemetry, metrics) = (store.clone(), telemetry.clone(), metrics.clone());
        self.committing = Some(Box::pin(async move {
            let committed = commit_all(store.as_ref(), &telemetry, sealed).await?;
            metrics.blobs.inc_by(committed.len() as u64);
            metrics.commits.inc();
            Ok(committed)
        }));
    }

    /// Waits for the commit under way, if there is one.
    pub(super) async fn finish_commit(&mut self) -> Result<(), Error> {
        if let Some(commit) = &mut self.committing {
            let result = commit.await;
            self.committing = None;
            self.committed.extend(result?);
        }
        Ok(())
    }

    fn abandon(&mut self) {
        self.blobs.abandon();
        self.committed.clear();
        self.committing = None;
        self.places.clear();
    }
}

async fn commit_all(
    store: &dyn BlobStore,
    telemetry: &Telemetry,
    pending: Vec<PendingBlob>,
) -> Result<Vec<CommittedBlob>, Error> {
    let commit = CommitId::random();
    // All blocks of all blobs are staged before the first blob becomes visible.
    let sealed = try_join_all(pending.into_iter().map(PendingBlob::sealed)).await?;
    let range = covering(&sealed);
    for some in sealed.chunks(COMMITS) {
        try_join_all(some.iter().map(|(blob, _)| commit_blob(store, blob, commit, range, telemetry))).await?;
    }
    let committed = |(sealed, _): (SealedBlob, Arc<Destination>)| {
        let SealedBlob { blob, records, bytes, range, .. } = sealed;
        CommittedBlob { blob, commit, records, bytes, range }
    };
    Ok(sealed.into_iter().map(committed).collect())
}

// The smallest range that holds those of all blobs.
fn covering(sealed: &[(SealedBlob, Arc<Destination>)]) -> OffsetRange {
    let ranges = sealed.iter().map(|(blob, _)| blob.range);
    let first = ranges.clone().map(|range| range.first).min().unwrap_or_default();
    let next = ranges.map(|range| range.next).max().unwrap_or_default();
    OffsetRange { first, next }
}
