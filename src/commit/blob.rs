//! The commit of one blob.

use std::fmt;
use std::time::Duration;

use rand::Rng;
use tracing::{info, warn};

use super::Error;
use crate::error::chain;
use crate::model::{OffsetRange, SealedBlob};
use crate::retry;
use crate::store::{self, BlobStore, BlockList, Condition};
use crate::telemetry::Telemetry;

/// 128 random bits that mark the blobs of one commit, in their metadata.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct CommitId(u128);

impl CommitId {
    /// An id that nobody else has.
    pub fn random() -> CommitId {
        CommitId(rand::rng().random())
    }
}

impl fmt::Display for CommitId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}", self.0)
    }
}

/// Name of the metadata entry that holds the commit id.
const COMMIT_ID: &str = "commit_id";

/// Makes `sealed` a blob, unless there is one of that name. Transient failures are repeated for as long as the future
/// lives; whether an unclear attempt succeeded is read off the blob's metadata.
///
/// # Errors
/// [`Error::NameTaken`], [`Error::BlocksGone`], or [`Error::Store`] when the store refuses for good.
pub async fn commit_blob(
    store: &dyn BlobStore,
    sealed: &SealedBlob,
    id: CommitId,
    range: OffsetRange,
    telemetry: &Telemetry,
) -> Result<(), Error> {
    let mut metadata = sealed.metadata.clone();
    metadata.insert(COMMIT_ID.to_owned(), id.to_string());
    metadata.insert("commit_first".to_owned(), range.first.to_string());
    metadata.insert("commit_next".to_owned(), range.next.to_string());
    let list = BlockList {
        blocks: sealed.blocks.clone(),
        headers: sealed.headers.clone(),
        metadata,
        condition: Condition::Absent,
    };
    let blob = &sealed.blob;
    let attempt = |attempt: u32| {
        let list = &list;
        async move {
            let error = match store.commit_block_list(blob, list).await {
                Ok(_) => return Ok(Verdict::Ours),
                Err(error) => error,
            };
            // A first attempt that failed clearly and for now can simply be repeated. Everything else may hide that an
            // earlier attempt, whose answer was lost, has made the blob: a repeated commit is answered as if somebody
            // else had been there first, or with 403 where the credential may only create.
            let repeat = error.class().is_transient() && !error.is_unclear() && attempt == 0;
            if repeat {
                return Err(error);
            }
            match store.properties(blob).await {
                Ok(Some(found)) if found.metadata.get(COMMIT_ID) == Some(&id.to_string()) => {
                    Ok(Verdict::Ours)
                }
                Ok(Some(found)) => Ok(Verdict::Taken { winner: found.metadata.get(COMMIT_ID).cloned() }),
                Ok(None) if error.class().is_transient() => Err(error),
                Ok(None) => match error {
                    store::Error::UnknownBlock { .. } => Ok(Verdict::BlocksGone),
                    // It was there and has been removed in between: the next attempt tells.
                    store::Error::AlreadyExists { .. } => Err(store::Error::Transport {
                        operation: "Put Block List",
                        resource: blob.to_string(),
                        source: Box::new(error),
                    }),
                    error => Err(error),
                },
                // The look failed: nothing is known, so both are repeated.
                Err(look) if look.class().is_transient() => Err(look),
                Err(look) => Err(look),
            }
        }
    };
    let subject = format!("store {} (committing)", blob.container);
    let mut failed = false;
    let on_failure = |error: &store::Error, attempts: u32, wait: Duration| {
        let reason = chain(error);
        telemetry.metrics.failure("Put Block List", error.kind());
        warn!(%blob, attempts, ?wait, error = reason, "commit failed, will retry");
        telemetry.health.raise(&subject, format!("blobs cannot be committed: {reason}"));
        failed = true;
    };
    let verdict = retry::forever(attempt, on_failure)
        .await
        .map_err(|source| Error::Store { blob: blob.to_string(), source })?;
    if failed {
        telemetry.health.clear(&subject);
    }
    match verdict {
        Verdict::Ours => {
            info!(%blob, records = sealed.records, bytes = sealed.bytes, range = %sealed.range, "blob committed");
            Ok(())
        }
        Verdict::Taken { winner } => Err(Error::NameTaken { blob: blob.to_string(), winner }),
        Verdict::BlocksGone => Err(Error::BlocksGone { blob: blob.to_string() }),
    }
}

enum Verdict {
    Ours,
    Taken { winner: Option<String> },
    BlocksGone,
}
