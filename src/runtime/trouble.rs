//! Whether the brokers can be reached, as far as a worker knows.
//!
//! Owns: the condition `kafka` of readiness. It ends on evidence only: records, an assignment, or an answer to a look-up.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use tracing::{info, warn};

use super::Shared;

/// What a worker knows.
#[derive(Default)]
pub(super) struct Trouble {
    holds: Arc<AtomicBool>,
    asking: Arc<AtomicBool>,
}

impl Trouble {
    /// The client has reported `error`.
    pub(super) fn begin(&self, shared: &Shared, error: &str) {
        self.holds.store(true, Ordering::Release);
        if shared.telemetry.health.raise("kafka", error) {
            warn!(error, "kafka client reports an error");
        }
    }

    /// Records or partitions have arrived.
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
        let Some(topic) = shared.plan.feeds.first().and_then(|feed| feed.topics.first()).cloned() else {
            return;
        };
        let (trouble, shared) =
            (Trouble { holds: self.holds.clone(), asking: self.asking.clone() }, shared.clone());
        // Ends by itself: the look-up has a time-out.
        shared.runtime.clone().spawn_blocking(move || {
            if shared.lookup.partitions(&topic).is_ok() {
                trouble.end(&shared);
            }
            trouble.asking.store(false, Ordering::Release);
        });
    }
}
