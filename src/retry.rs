//! Waiting between attempts.
//!
//! Owns: how long to wait, and the loop that repeats an operation for as long as the process lives.
//! Does not own: what counts as transient; the error's [`Class`] tells.

use std::future::Future;
use std::time::Duration;

use rand::Rng;

use crate::error::Class;

/// Capped exponential backoff with jitter.
#[derive(Debug, Clone)]
pub struct Backoff {
    initial: Duration,
    max: Duration,
    attempt: u32,
}

impl Backoff {
    /// Waits of about `initial`, doubling up to `max`.
    pub fn new(initial: Duration, max: Duration) -> Backoff {
        Backoff { initial, max, attempt: 0 }
    }

    /// For requests over the network: 100 ms to 30 s.
    pub fn network() -> Backoff {
        Backoff::new(Duration::from_millis(100), Duration::from_secs(30))
    }

    /// For requests that lack a permission, which only a person can give: 5 s to 60 s.
    pub fn denied() -> Backoff {
        Backoff::new(Duration::from_secs(5), Duration::from_secs(60))
    }

    /// Attempts that failed so far.
    pub fn attempt(&self) -> u32 {
        self.attempt
    }

    /// How long to wait before the next attempt. `asked` is what the server wants (Retry-After) and is never undercut,
    /// except that nobody makes us wait longer than ten minutes.
    pub fn next_wait(&mut self, asked: Option<Duration>) -> Duration {
        let doubled =
            self.initial.saturating_mul(1_u32.checked_shl(self.attempt.min(20)).unwrap_or(u32::MAX));
        self.attempt = self.attempt.saturating_add(1);
        // Half fixed, half random: many partitions that failed together must not come back together.
        let full = doubled.min(self.max);
        let wait = full / 2 + full.mul_f64(rand::rng().random_range(0.0..0.5));
        wait.max(asked.unwrap_or_default().min(Duration::from_secs(600)))
    }
}

/// An error that knows whether the call may be repeated.
pub trait Classify: std::error::Error {
    /// What to do about it.
    fn class(&self) -> Class;

    /// How long the server asked to wait.
    fn retry_after(&self) -> Option<Duration> {
        None
    }
}

/// Repeats `operation` until it succeeds or fails for good. Every transient failure is given to `on_failure` with the
/// number of attempts so far and the wait that follows. Cancel safe: dropping the future stops the loop.
///
/// # Errors
/// The first error that is not transient.
pub async fn forever<T, E, F, Fut>(
    mut operation: F,
    mut on_failure: impl FnMut(&E, u32, Duration),
) -> Result<T, E>
where
    E: Classify,
    F: FnMut(u32) -> Fut,
    Fut: Future<Output = Result<T, E>>,
{
    let mut backoff = Backoff::network();
    let mut denied = Backoff::denied();
    let mut attempts = 0;
    loop {
        let error = match operation(attempts).await {
            Ok(value) => return Ok(value),
            Err(error) => error,
        };
        attempts += 1;
        let wait = match error.class() {
            Class::Retry => backoff.next_wait(error.retry_after()),
            Class::Denied => denied.next_wait(error.retry_after()),
            _ => return Err(error),
        };
        on_failure(&error, attempts, wait);
        tokio::time::sleep(wait).await;
    }
}
