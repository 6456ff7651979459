//! What a lane does when memory gets scarce.
//!
//! Owns: the order of relief: stage the largest tail early, commit the oldest partition, stop dequeuing.
//! Does not own: the budget.

use super::lane::Lane;
use super::partition::State;
use crate::budget::Budget;
use crate::model::Slot;

/// Tails below this are not worth a block of their own.
const WORTH_STAGING: usize = 16 * 1024;

/// Whether the lane waits for memory.
#[derive(Debug, Default)]
pub(super) struct Relief {
    blocked: bool,
    may_pass: bool,
}

impl Relief {
    /// A record did not fit.
    pub(super) fn blocked(&mut self) {
        self.blocked = true;
    }

    /// A new attempt to read begins: the record that did not fit may be gone with its partition.
    pub(super) fn begin(&mut self) {
        self.blocked = false;
    }

    /// A record was taken.
    pub(super) fn passed(&mut self) {
        self.blocked = false;
        self.may_pass = false;
    }

    /// Whether the next record is taken although it does not fit: nothing else is held that could make room.
    pub(super) fn may_pass(&self) -> bool {
        self.may_pass
    }

    /// Whether a record waits for room.
    pub(super) fn is_blocked(&self) -> bool {
        self.blocked
    }
}

/// Frees memory if it is scarce.
pub(super) fn relieve(lane: &mut Lane, budget: &Budget) {
    let share = |percent: usize| budget.limit() / 100 * percent;
    let blocked = lane.relief.is_blocked();
    if !blocked && budget.used() < share(80) {
        return;
    }
    // What is on its way to the store comes back by itself; cutting more would only make blocks smaller.
    while budget.used().saturating_sub(budget.in_flight()) >= share(50) {
        let largest = lane
            .partitions
            .values()
            .map(|p| (p.blobs.largest_tail(), p.slot))
            .max_by_key(|(tail, _)| *tail)
            .filter(|(tail, _)| *tail >= WORTH_STAGING);
        match largest {
            Some((_, slot)) => lane.cut_largest(slot),
            None => break,
        }
    }
    let scarce = blocked || budget.used() >= share(95);
    if scarce && budget.in_flight() < budget.used() / 2 {
        commit_oldest(lane);
    }
    if blocked && nothing_held(lane) {
        lane.relief.may_pass = true;
    }
}

fn commit_oldest(lane: &mut Lane) {
    let oldest = lane
        .partitions
        .values()
        .filter(|p| !p.blobs.is_empty() && p.committer.as_ref().is_some_and(|c| c.has_room()))
        .filter_map(|p| p.since.map(|since| (since, p.slot)))
        .min();
    if let Some((_, slot)) = oldest {
        let slot: Slot = slot;
        lane.flush(slot);
    }
}

// Whether no partition of the lane holds bytes that a commit could free.
fn nothing_held(lane: &Lane) -> bool {
    lane.partitions
        .values()
        .all(|p| (p.blobs.is_empty() && p.committing == 0) || matches!(p.state, State::Failed { .. }))
}
