//! Runs a plan: workers read partitions, write their records into blobs, commit, and give partitions up in good order.
//!
//! Owns: workers and lanes, the life of a partition from assignment to revoke, back-pressure, what happens to a bad
//! record, the drain at the end.
//! Does not own: the protocol of a commit (see [`crate::commit`]), signals and exit codes (see [`crate::cli`]).

mod connector;
mod lane;
mod partition;
mod position;
mod relief;
mod schemas;
mod slots;
mod target;
mod trouble;
mod until_end;
mod worker;

pub use connector::{Connector, Outcome};
pub use schemas::SchemaFault;

use std::sync::Arc;

use crate::budget::Budget;
use crate::commit;
use crate::error::Class;
use crate::kafka::Lookup;
use crate::offset::SharedOffsets;
use crate::producer::{Claims, Stager};
use crate::telemetry::Telemetry;
use crate::{kafka, offset, plan, registry, store};

/// What the workers of a process share.
struct Shared {
    plan: Arc<plan::Plan>,
    stager: Stager,
    claims: Claims,
    commits: commit::Shared,
    offsets: SharedOffsets,
    schemas: schemas::Schemas,
    lookup: Arc<Lookup>,
    asking: tokio::sync::Semaphore,
    budget: Budget,
    telemetry: Telemetry,
    runtime: tokio::runtime::Handle,
    until_end: Option<Arc<until_end::UntilEnd>>,
}

/// Why a plan cannot be run, or did not end well.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The store cannot be used.
    #[error("the store cannot be used")]
    Store(#[from] store::Error),
    /// The offset storage cannot be used.
    #[error("the offset storage cannot be used")]
    Offsets(#[from] offset::Error),
    /// The brokers or the client cannot be used.
    #[error("kafka cannot be used")]
    Kafka(#[from] kafka::Error),
    /// The schema registry cannot be used.
    #[error("the schema registry cannot be used")]
    Registry(#[from] registry::Error),
    /// Partitions stopped, so that the run cannot come to its end.
    #[error("{} partition(s) stopped: {}", reasons.len(), reasons.join("; "))]
    Partitions {
        /// The reason of each.
        reasons: Vec<String>,
    },
    /// The deadline passed before everything read was committed and persisted; it will be read again.
    #[error(
        "{partitions} partition(s) were not committed within the shutdown deadline; a restart reads their records again"
    )]
    DrainIncomplete {
        /// How many.
        partitions: usize,
    },
    /// A thread could not be started, or ended by a panic.
    #[error("a worker ended: {reason}")]
    Worker {
        /// Why.
        reason: String,
    },
}

impl Error {
    /// What to do about it.
    pub fn class(&self) -> Class {
        match self {
            Error::Store(error) => error.class(),
            Error::Offsets(error) => error.class(),
            Error::Kafka(error) => error.class(),
            Error::Registry(error) => error.class(),
            Error::Partitions { .. } => Class::BadData,
            Error::DrainIncomplete { .. } => Class::Retry,
            Error::Worker { .. } => Class::Bug,
        }
    }
}
