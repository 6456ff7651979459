//! The end of `run --until-end`: the ends of the logs at the start.
//!
//! Owns: which partitions are persisted up to their end, whoever of the group reads them.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

use crate::model::{Offset, TopicPartition};

/// How far each partition has to be, and is.
pub(super) struct UntilEnd {
    partitions: Mutex<BTreeMap<TopicPartition, Progress>>,
}

struct Progress {
    end: Offset,
    persisted: Option<Offset>,
    failed: Option<String>,
}

impl UntilEnd {
    pub(super) fn new(ends: impl IntoIterator<Item = (TopicPartition, Offset)>) -> UntilEnd {
        let progress = |(at, end)| (at, Progress { end, persisted: None, failed: None });
        UntilEnd { partitions: Mutex::new(ends.into_iter().map(progress).collect()) }
    }

    pub(super) fn end_of(&self, at: &TopicPartition) -> Option<Offset> {
        self.lock().get(at).map(|p| p.end)
    }

    pub(super) fn persisted(&self, at: &TopicPartition, next: Offset) {
        if let Some(progress) = self.lock().get_mut(at) {
            progress.persisted = Some(next);
        }
    }

    /// The partition is tried again.
    pub(super) fn begun(&self, at: &TopicPartition) {
        if let Some(progress) = self.lock().get_mut(at) {
            progress.failed = None;
        }
    }

    pub(super) fn failed(&self, at: &TopicPartition, reason: &str) {
        if let Some(progress) = self.lock().get_mut(at) {
            progress.failed = Some(reason.to_owned());
        }
    }

    /// Partitions that are not at their end and have not failed.
    pub(super) fn open(&self) -> Vec<TopicPartition> {
        let open = |p: &Progress| p.failed.is_none() && p.persisted.is_none_or(|persisted| persisted < p.end);
        self.lock().iter().filter(|(_, p)| open(p)).map(|(at, _)| at.clone()).collect()
    }

    /// Why partitions stopped before their end.
    pub(super) fn failures(&self) -> Vec<String> {
        self.lock().values().filter_map(|p| p.failed.clone()).collect()
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, BTreeMap<TopicPartition, Progress>> {
        self.partitions.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
