//! What the lane shows of itself.

use std::sync::Arc;
use std::time::Instant;

use super::super::partition::State;
use super::super::target::FeedTarget;
use super::Lane;
use crate::model::{Offset, TopicPartition};

impl Lane {
    /// Publishes figures and status.
    pub(in crate::runtime) fn publish(
        &self,
        now: Instant,
        known_end: impl Fn(&TopicPartition) -> Option<Offset>,
    ) {
        let mut waiting = 0;
        let mut failed = 0;
        let mut assigned = 0;
        let mut lags: Vec<(&Arc<FeedTarget>, i64)> = self.feeds.iter().map(|f| (f, 0)).collect();
        for partition in self.partitions.values() {
            assigned += 1;
            match partition.state {
                State::Failed { .. } => failed += 1,
                State::Resolving | State::AwaitingSchema { .. } => waiting += 1,
                _ => {}
            }
            if let (Some(end), Some(committed)) = (known_end(&partition.at), partition.committed)
                && let Some(lag) = lags.iter_mut().find(|(feed, _)| Arc::ptr_eq(feed, &partition.target))
            {
                lag.1 += (end.get() - committed.get()).max(0);
            }
            self.shared.telemetry.status.set(&partition.source, partition.status(now));
        }
        for (feed, lag) in lags {
            feed.metrics.lag.set(lag);
        }
        self.shared.telemetry.metrics.partitions(assigned, failed, waiting);
        self.shared.telemetry.metrics.memory(self.shared.budget.used(), self.shared.budget.limit());
    }
}
