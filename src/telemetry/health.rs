//! Why the process is not ready.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// The set of conditions that hold now. Cloning shares it.
#[derive(Clone, Default)]
pub struct Health {
    conditions: Arc<Mutex<BTreeMap<String, Condition>>>,
}

struct Condition {
    reason: String,
    since: Instant,
}

/// A condition as it is shown.
#[derive(Debug, Clone, serde::Serialize)]
pub struct Reason {
    /// What it is about: a partition, `store`, `kafka`, ...
    pub subject: String,
    /// What is wrong, in words.
    pub reason: String,
    /// For how long.
    pub seconds: u64,
}

impl Health {
    /// Not ready until the subject `starting` is cleared.
    pub fn new() -> Health {
        let health = Health::default();
        health.raise("starting", "the connector has not joined its group yet");
        health
    }

    /// States that `subject` is not well. True when that is news.
    pub fn raise(&self, subject: &str, reason: impl Into<String>) -> bool {
        let reason = reason.into();
        let mut conditions = self.lock();
        match conditions.get_mut(subject) {
            Some(known) => {
                let news = known.reason != reason;
                known.reason = reason;
                news
            }
            None => {
                conditions.insert(subject.to_owned(), Condition { reason, since: Instant::now() });
                true
            }
        }
    }

    /// States that `subject` is well. True, with how long it was not, when that is news.
    pub fn clear(&self, subject: &str) -> Option<Duration> {
        self.lock().remove(subject).map(|c| c.since.elapsed())
    }

    /// What is wrong now, by subject; empty means ready.
    pub fn reasons(&self) -> Vec<Reason> {
        self.lock()
            .iter()
            .map(|(subject, c)| Reason {
                subject: subject.clone(),
                reason: c.reason.clone(),
                seconds: c.since.elapsed().as_secs(),
            })
            .collect()
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, BTreeMap<String, Condition>> {
        self.conditions.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ready_means_that_no_condition_holds() {
        let health = Health::new();
        assert_eq!(health.reasons()[0].subject, "starting");
        assert!(health.clear("starting").is_some());
        assert!(health.reasons().is_empty());
        assert!(health.raise("store", "503"));
        assert!(!health.raise("store", "503"), "the same reason is no news");
        assert!(health.raise("store", "504"));
        assert!(health.clear("kafka").is_none());
        assert_eq!(health.reasons().len(), 1);
    }
}
