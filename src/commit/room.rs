//! Waiting for memory.
//!
//! Owns: whether a record may be written now, and what is staged early to make room for it.
//! Does not own: the budget; blobs.

use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::sync::Mutex;

use crate::budget::Budget;
use crate::producer::{Error, OpenBlobs};

/// Tails below this are not worth a block of their own while there is still room.
const WORTH_STAGING: usize = 16 * 1024;

/// The memory that the sources of a producer share.
pub(super) struct Room {
    budget: Budget,
    // Whoever waits holds it, so that a large record is not overtaken for ever by small ones.
    turn: Mutex<()>,
    waiting: AtomicUsize,
}

impl Room {
    pub(super) fn new(budget: Budget) -> Room {
        Room { budget, turn: Mutex::new(()), waiting: AtomicUsize::new(0) }
    }

    /// Waits until `need` bytes fit. Stages the tails of `own` first, then `relieve_another` is asked to stage a tail of
    /// somebody else (false: there is none). A record that nothing can make room for passes when nothing is in flight
    /// any more: it is then the only one. Cancel safe.
    ///
    /// # Errors
    /// Those of [`OpenBlobs::cut_largest`].
    pub(super) async fn make(
        &self,
        need: usize,
        own: &mut OpenBlobs,
        relieve_another: impl Fn() -> bool,
    ) -> Result<(), Error> {
        if self.waiting.load(Ordering::Acquire) == 0 && self.budget.free() >= need {
            return self.relieve_early(own);
        }
        let _waiting = Waiting::new(&self.waiting);
        while !self.will_fit(need) && cut(own)? {}
        let _turn = self.turn.lock().await;
        loop {
            let mut released = std::pin::pin!(self.budget.released());
            released.as_mut().enable();
            if self.budget.free() >= need {
                return Ok(());
            }
            if !self.will_fit(need) {
                if cut(own)? || relieve_another() {
                    continue;
                }
                if self.budget.in_flight() == 0 {
                    return Ok(());
                }
            }
            released.await;
        }
    }

    // At 80 % the largest tail is staged, so that sending rarely has to wait at all.
    fn relieve_early(&self, own: &mut OpenBlobs) -> Result<(), Error> {
        let share = |percent: usize| self.budget.limit() / 100 * percent;
        let used = self.budget.used();
        let scarce = used >= share(80) && used.saturating_sub(self.budget.in_flight()) >= share(50);
        if scarce && own.largest_tail() >= WORTH_STAGING { own.cut_largest() } else { Ok(()) }
    }

    // Whether what is in flight makes enough room when it is staged: cutting more would only make blocks smaller.
    fn will_fit(&self, need: usize) -> bool {
        let held = self.budget.used().saturating_sub(self.budget.in_flight());
        held.saturating_add(need) <= self.budget.limit()
    }
}

/// Stages the largest tail; false when there was none.
pub(super) fn cut(blobs: &mut OpenBlobs) -> Result<bool, Error> {
    let before = blobs.buffered();
    if before == 0 {
        return Ok(false);
    }
    blobs.cut_largest()?;
    // An encoder that keeps what it should give out must not make this an endless loop.
    Ok(blobs.buffered() < before)
}

struct Waiting<'a>(&'a AtomicUsize);

impl<'a> Waiting<'a> {
    fn new(count: &'a AtomicUsize) -> Waiting<'a> {
        count.fetch_add(1, Ordering::AcqRel);
        Waiting(count)
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::AcqRel);
    }
}
