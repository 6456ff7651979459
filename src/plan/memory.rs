//! How the memory budget is divided, and the least that a plan works with.
//!
//! Owns: both sums.
//! Does not own: counting what is taken (see [`crate::budget`]).

use super::types::{Feed, Plan};

const MIB: u64 = 1 << 20;

/// More than this need not be fetched ahead, however large the budget is.
const MAX_PREFETCH: u64 = 64 * MIB;

/// Less than this and a client stops reading between two fetches.
const MIN_PREFETCH_PER_WORKER: u64 = MIB;

/// Codec scratch and the first chunks of open blobs.
const SCRATCH_PER_WORKER: u64 = MIB;

/// The shares of the budget, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MemoryShares {
    /// What each worker's client may fetch ahead.
    pub prefetch_per_worker: u64,
    /// What records may hold from then on, in the whole process.
    pub records: u64,
}

impl Plan {
    /// The shares of this plan's budget.
    pub fn memory_shares(&self) -> MemoryShares {
        shares(self.memory.budget, self.kafka.workers as u64)
    }

    /// The smallest budget that this plan works with.
    pub fn memory_minimum(&self) -> u64 {
        minimum(self.kafka.workers as u64, largest_block(&self.feeds))
    }
}

/// The size of the largest block that a feed makes.
pub(super) fn largest_block(feeds: &[Feed]) -> u64 {
    feeds.iter().map(|feed| feed.flush.max_block_size).max().unwrap_or(0)
}

/// The smallest budget: each worker fills one block while another one is on its way.
pub(super) fn minimum(workers: u64, block: u64) -> u64 {
    let records = workers * (2 * block + SCRATCH_PER_WORKER);
    let prefetch = (records / 3).min(MAX_PREFETCH).max(workers * MIN_PREFETCH_PER_WORKER);
    // A quarter goes to prefetch, so a share that is set from below asks for four times as much in all.
    let budget = (records + prefetch).max(4 * (workers * MIN_PREFETCH_PER_WORKER).min(MAX_PREFETCH));
    budget.div_ceil(MIB) * MIB
}

fn shares(budget: u64, workers: u64) -> MemoryShares {
    let prefetch = (budget / 4).min(MAX_PREFETCH);
    MemoryShares { prefetch_per_worker: prefetch / workers.max(1), records: budget - prefetch }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_minimum_gives_each_worker_what_it_needs() {
        for workers in [1, 2, 7, 64] {
            for block in [64 << 10, 1 << 20, 8 << 20, 100 << 20] {
                let shares = shares(minimum(workers, block), workers);
                assert!(
                    shares.prefetch_per_worker >= MIN_PREFETCH_PER_WORKER,
                    "{workers} {block}: {shares:?}"
                );
                assert!(shares.records >= workers * 2 * block, "{workers} {block}: {shares:?}");
            }
        }
        assert_eq!(minimum(1, 8 << 20), 23 * MIB);
    }

    #[test]
    fn shares_never_exceed_the_budget() {
        for budget in [4 * MIB, 512 * MIB, 1 << 40] {
            let shares = shares(budget, 3);
            assert!(3 * shares.prefetch_per_worker + shares.records <= budget);
        }
    }
}
