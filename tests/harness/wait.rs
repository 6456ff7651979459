//! Waiting for what must come.

use std::time::{Duration, Instant};

/// Looks again and again until `look` finds something.
///
/// # Panics
/// When `limit` is over, with what it was seen to be instead.
pub(crate) async fn eventually<T>(
    what: &str,
    limit: Duration,
    mut look: impl AsyncFnMut() -> Result<T, String>,
) -> T {
    let begun = Instant::now();
    loop {
        let seen = match look().await {
            Ok(found) => return found,
            Err(seen) => seen,
        };
        assert!(begun.elapsed() < limit, "waited {limit:?} for {what}; last seen: {seen}");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

/// Looks again and again for as long as `time` lasts.
///
/// # Panics
/// As soon as `look` finds that it is not so.
pub(crate) async fn throughout(
    what: &str,
    time: Duration,
    mut look: impl AsyncFnMut() -> Result<(), String>,
) {
    let begun = Instant::now();
    while begun.elapsed() < time {
        if let Err(seen) = look().await {
            panic!("{what} was to hold for {time:?}; after {:?}: {seen}", begun.elapsed());
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}
