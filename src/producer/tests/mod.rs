//! Writing, staging and sealing against the store in memory; helpers for tests of commits too.

mod naming;
mod open_blobs;
mod writer;

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use futures::future::join_all;
use tokio::runtime::Handle;

use super::*;
use crate::budget::{Budget, Tail};
use crate::commit::{CommitId, commit_blob};
use crate::format::{BadRecord, Encoder, Facts, Reason};
use crate::model::{
    BlobHeaders, BlobName, BlobRef, Metadata, Offset, OffsetRange, Record, RecordRef, SealedBlob,
};
use crate::store::{self, BlobStore, Condition, Fault, MemoryStore, Operation, OperationKind};
use crate::telemetry::Telemetry;

pub(crate) const CONTAINER: &str = "data";
pub(crate) const NO_LIMITS: BlobLimits =
    BlobLimits { block_bytes: usize::MAX, blob_bytes: u64::MAX, records: u64::MAX, blocks: u32::MAX };

/// Writes each value on a line of its own, and gives bytes out when flushed or when `hold` bytes have gathered.
pub(crate) struct Lines {
    hold: usize,
    held: Vec<u8>,
    facts: Facts,
}

impl Lines {
    pub(crate) fn holding(hold: usize) -> Lines {
        Lines { hold, held: Vec::new(), facts: Facts::default() }
    }
}

impl Encoder for Lines {
    fn append(&mut self, record: &RecordRef<'_>, out: &mut Tail) -> Result<(), BadRecord> {
        let value = record.value.ok_or(BadRecord::new(Reason::NullValue, 0))?;
        self.held.extend_from_slice(value);
        self.held.push(b'\n');
        self.facts.records += 1;
        self.facts.raw_bytes += value.len() as u64;
        if self.held.len() >= self.hold {
            self.flush(out);
        }
        Ok(())
    }

    fn flush(&mut self, out: &mut Tail) {
        out.push_slice(&self.held);
        self.held.clear();
    }

    fn buffered(&self) -> usize {
        self.held.len()
    }

    fn facts(&self) -> Facts {
        self.facts
    }
}

pub(crate) fn record(offset: i64, value: &str) -> Record {
    Record { offset: Offset::new(offset).unwrap(), value: Some(value.to_owned().into()), ..Record::default() }
}

pub(crate) fn blob(name: &str) -> BlobRef {
    BlobRef { container: CONTAINER.into(), name: BlobName::new(name).unwrap() }
}

pub(crate) fn transport() -> store::Error {
    store::Error::Transport {
        operation: "request",
        resource: "blob".to_owned(),
        source: "connection reset".into(),
    }
}

pub(crate) fn unavailable() -> store::Error {
    store::Error::Unavailable {
        operation: "request",
        resource: "blob".to_owned(),
        status: 503,
        code: "ServerBusy".to_owned(),
        retry_after: None,
    }
}

pub(crate) fn refused() -> store::Error {
    store::Error::Refused {
        operation: "request",
        resource: "blob".to_owned(),
        status: 400,
        code: "InvalidInput".to_owned(),
        message: "no".to_owned(),
    }
}

pub(crate) fn denied() -> store::Error {
    store::Error::Denied {
        operation: "request",
        resource: "blob".to_owned(),
        status: 403,
        code: "AuthorizationPermissionMismatch".to_owned(),
        hint: "grant it".to_owned(),
    }
}

/// An empty store with the container.
pub(crate) async fn store() -> MemoryStore {
    let store = MemoryStore::new();
    store.ensure_container(CONTAINER, true).await.unwrap();
    store
}

/// The store through a fault that the n-th call of `kind` (from 0) meets as `fault` says.
pub(crate) fn faulty(
    store: &MemoryStore,
    kind: OperationKind,
    fault: impl Fn(usize, &Operation) -> Option<Fault> + Send + Sync + 'static,
) -> MemoryStore {
    let calls = AtomicUsize::new(0);
    store.clone().with_faults(move |operation| {
        if operation.kind != kind {
            return None;
        }
        fault(calls.fetch_add(1, Ordering::SeqCst), operation)
    })
}

/// The text of a committed blob.
pub(crate) async fn content(store: &MemoryStore, blob: &BlobRef) -> Option<String> {
    let bytes = store.read(blob, 0, u64::MAX).await.unwrap()?;
    Some(String::from_utf8(bytes.to_vec()).unwrap())
}

struct Bench {
    store: MemoryStore,
    stager: Stager,
    budget: Budget,
    telemetry: Telemetry,
    claims: Claims,
}

impl Bench {
    fn new(store: MemoryStore) -> Bench {
        let (budget, telemetry) = (Budget::new(16 << 20), Telemetry::new());
        let shared = Arc::new(store.clone());
        let stager = Stager::new(shared, Handle::current(), 8, budget.clone(), telemetry.clone());
        Bench { store, stager, budget, telemetry, claims: Claims::default() }
    }

    fn writer_to(&self, naming: Naming, limits: BlobLimits) -> BlobWriter {
        let destination = Destination::new(CONTAINER.into(), naming, self.claims.clone());
        let description = BlobDescription {
            destination,
            encoder: Box::new(Lines::holding(64)),
            headers: BlobHeaders::default(),
            metadata: Metadata::from([("feed".to_owned(), "f".to_owned())]),
            limits,
        };
        BlobWriter::new(&self.stager, &self.telemetry.metrics.feed("f"), description)
    }

    fn writer(&self, name: &str, limits: BlobLimits) -> BlobWriter {
        self.writer_to(Naming::Fixed(BlobName::new(name).unwrap()), limits)
    }

    // As the commit module does it.
    async fn commit(&self, pending: PendingBlob) -> SealedBlob {
        let (sealed, _claim) = pending.sealed().await.unwrap();
        let (id, range) = (CommitId::random(), sealed.range);
        commit_blob(&self.store, &sealed, id, range, &self.telemetry).await.unwrap();
        sealed
    }
}

fn write(writer: &mut BlobWriter, offsets: std::ops::Range<i64>) {
    for offset in offsets {
        writer.write(&record(offset, &offset.to_string()).as_ref()).unwrap();
    }
}

fn close(writer: &mut BlobWriter) -> PendingBlob {
    writer.flush().unwrap();
    writer.close().unwrap().expect("there are records")
}

fn lines(offsets: std::ops::Range<i64>) -> String {
    offsets.map(|offset| format!("{offset}\n")).collect()
}

fn limits(block_bytes: usize) -> BlobLimits {
    BlobLimits { block_bytes, ..NO_LIMITS }
}
