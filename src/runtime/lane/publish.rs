//! What the lane shows of itself.

use std::time::Instant;

use super::Lane;
use crate::model::{Offset, TopicPartition};

impl Lane {
    /// Publishes status, and the figures of the process, which are sums over the partitions of all lanes.
    pub(in crate::runtime) fn publish(
        &self,
        now: Instant,
        known_end: impl Fn(&TopicPartition) -> Option<Offset>,
    ) {
        let telemetry = &self.shared.telemetry;
        for partition in self.partitions.values() {
            let mut status = partition.status(now);
            if let (Some(end), Some(committed)) = (known_end(&partition.at), partition.committed) {
                status.lag = Some((end.get() - committed.get()).max(0));
            }
            telemetry.status.set(&partition.source, status);
        }
        let totals = telemetry.status.totals();
        for feed in &self.feeds {
            feed.metrics.lag.set(totals.lag.get(&*feed.feed.name).copied().unwrap_or(0));
        }
        telemetry.metrics.partitions(totals.assigned, totals.failed, totals.waiting);
        telemetry.metrics.memory(self.shared.budget.used(), self.shared.budget.limit());
    }
}
