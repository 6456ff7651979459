//! Whether the brokers can be reached, as far as a worker knows.
//!
//! Owns: the condition `kafka` of readiness. It ends on evidence only: an assignment, or a look-up that finds all topics.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use tracing::{info, warn};

use super::Shared;
use crate::error::chain;

/// What a worker knows.
#[derive(Default)]
pub(super) struct Trouble {
    holds: Arc<AtomicBool>,
    asking: Arc<AtomicBool>,
}

impl Trouble {
    /// The client has reported `error`.
    pub(super) fn begin(&self, shared: &Shared, error: &str) {
        // Reports repeat; what a look-up has found out meanwhile says more.
        if self.holds.swap(true, Ordering::AcqRel) {
            return;
        }
        if shared.telemetry.health.raise("kafka", error) {
            warn!(error, "kafka client reports an error");
        }
    }

    /// Partitions have arrived, or all topics are there.
    pub(super) fn end(&self, shared: &Shared) {
        if self.holds.swap(false, Ordering::AcqRel) {
            let outage = shared.telemetry.health.clear("kafka");
            info!(?outage, "kafka answers again");
        }
    }

    /// Asks the brokers, off this thread, whether they are back; a quiet topic would not tell.
    pub(super) fn look(&self, shared: &Arc<Shared>) {
        if !self.holds.load(Ordering::Acquire) || self.asking.swap(true, Ordering::AcqRel) {
            return;
        }
        let (trouble, shared) =
            (Trouble { holds: self.holds.clone(), asking: self.asking.clone() }, shared.clone());
        // Ends by itself: the look-up has a time-out.
        shared.runtime.clone().spawn_blocking(move || {
            let mut topics = shared.plan.feeds.iter().flat_map(|feed| &feed.topics);
            match topics.try_for_each(|topic| shared.lookup.partitions(topic).map(drop)) {
                Ok(()) => trouble.end(&shared),
                Err(error) => {
                    shared.telemetry.health.raise("kafka", chain(&error));
                }
            }
            trouble.asking.store(false, Ordering::Release);
        });
    }
}
