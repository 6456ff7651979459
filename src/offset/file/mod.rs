//! Offsets in one file on this machine, for a connector that needs no other server.
//!
//! Owns: compare-and-set by value under a lock that processes of one machine share; the order read, compare, replace.
//! Does not own: the file's format (see [`book`]), locking and replacing it (see [`disk`]).
//! Crash: the file is replaced by rename, so it holds the old batch or the new one, never a part.
//!
//! A file has no versions, so an entry counts as changed by somebody else when its value is not the one that this
//! instance saw last. Who moves an offset away and back again goes unnoticed, and does no harm.

mod book;
mod disk;

use std::path::Path;
use std::sync::Arc;

use async_trait::async_trait;
use tokio::sync::Mutex;

use self::book::Book;
use self::disk::{Disk, ReplaceError};
use super::ledger::{Found, Ledger, Verdict};
use super::{Error, OffsetStorage, PersistOffset, check_offset};
use crate::model::FeedPartitionKey;

/// Offsets in a file. Several processes on one machine may share it.
///
/// Calls run off the async threads. A call that is dropped still runs to its end.
pub struct FileOffsets {
    inner: Arc<Inner>,
    // Calls of one instance take turns, so that what they learn of an entry reaches the ledger in order, and so that
    // many calls at once do not fill the runtime's blocking threads.
    turn: Arc<Mutex<()>>,
}

struct Inner {
    disk: Disk,
    ledger: Ledger<()>,
}

impl FileOffsets {
    /// Offsets in the file at `path`, which the first write makes when it is absent, with its folder. Beside it lie
    /// `<path>.lock`, which stays, and for moments `<path>.tmp`.
    ///
    /// # Errors
    /// [`Error::Configuration`] when `path` does not name a file.
    pub fn new(path: &Path) -> Result<FileOffsets, Error> {
        let disk = Disk::new(path)?;
        Ok(FileOffsets::on(disk))
    }

    fn on(disk: Disk) -> FileOffsets {
        FileOffsets { inner: Arc::new(Inner { disk, ledger: Ledger::new() }), turn: Arc::default() }
    }

    async fn blocking<T: Send + 'static>(
        &self,
        call: impl FnOnce(&Inner) -> T + Send + 'static,
    ) -> Result<T, Error> {
        let inner = self.inner.clone();
        let turn = self.turn.clone().lock_owned().await;
        let task = tokio::task::spawn_blocking(move || {
            // Not before the end, though the caller may be gone by then.
            let _turn = turn;
            call(&inner)
        });
        task.await.map_err(|error| self.inner.disk.unavailable(error))
    }
}

impl Inner {
    fn persist(&self, batch: &[PersistOffset]) -> Vec<Result<(), Error>> {
        // The lock is held from here to the end.
        let opened = self.disk.lock().and_then(|lock| Ok((lock, self.disk.read()?)));
        let (lock, mut book) = match opened {
            Ok(opened) => opened,
            Err(error) => return batch.iter().map(|_| Err(error.again())).collect(),
        };
        let results: Vec<_> = batch.iter().map(|entry| self.enter(&mut book, entry)).collect();
        let written = |result: &Result<bool, Error>| matches!(result, Ok(true));
        if !results.iter().any(written) {
            return results.into_iter().map(|result| result.map(drop)).collect();
        }
        let outcome = self.disk.replace(&lock, &book);
        let settle = |(result, entry): (Result<bool, Error>, &PersistOffset)| {
            if !written(&result) {
                return result.map(drop);
            }
            match &outcome {
                Ok(()) => self.ledger.written(&entry.key, (), &entry.offset),
                Err(ReplaceError::Unchanged(_)) => self.ledger.refused(&entry.key),
                Err(ReplaceError::Unclear(_)) => {}
            }
            outcome.as_ref().map_err(|failure| failure.cause().again()).copied()
        };
        results.into_iter().zip(batch).map(settle).collect()
    }

    // Whether `book` had to be changed to hold `entry`.
    fn enter(&self, book: &mut Book, entry: &PersistOffset) -> Result<bool, Error> {
        check_offset(entry)?;
        let PersistOffset { key, offset } = entry;
        let found = book.get(key).map(|offset| Found { version: (), offset: offset.to_owned() });
        match self.ledger.judge(key, found, offset) {
            Verdict::Write => {
                self.ledger.sending(key, offset);
                book.set(key, offset);
                Ok(true)
            }
            Verdict::Written => Ok(false),
            Verdict::Conflict(stored) => {
                Err(Error::Conflict { key: key.clone(), stored, ours: offset.clone() })
            }
        }
    }

    fn find(&self, key: &FeedPartitionKey) -> Result<Option<String>, Error> {
        // No lock: a rename is seen whole or not at all.
        let book = self.disk.read().map_err(|failure| failure.again())?;
        let offset = book.get(key).map(str::to_owned);
        self.ledger.note(key, offset.clone().map(|offset| Found { version: (), offset }));
        Ok(offset)
    }

    fn delete(&self, key: &FeedPartitionKey) -> Result<(), Error> {
        let lock = self.disk.lock().map_err(|failure| failure.again())?;
        let mut book = self.disk.read().map_err(|failure| failure.again())?;
        if book.remove(key) {
            self.disk.replace(&lock, &book).map_err(|failure| {
                if let ReplaceError::Unclear(_) = failure {
                    self.ledger.forget(key);
                }
                failure.cause().again()
            })?;
        }
        self.ledger.note(key, None);
        Ok(())
    }
}

#[async_trait]
impl OffsetStorage for FileOffsets {
    async fn persist_offsets(&self, batch: &[PersistOffset]) -> Vec<Result<(), Error>> {
        let owned = batch.to_vec();
        match self.blocking(move |inner| inner.persist(&owned)).await {
            Ok(results) => results,
            Err(error) => {
                let reason = crate::error::chain(&error);
                batch.iter().map(|_| Err(self.inner.disk.unavailable(reason.clone()))).collect()
            }
        }
    }

    async fn find_latest_persisted_offset(&self, key: &FeedPartitionKey) -> Result<Option<String>, Error> {
        let key = key.clone();
        self.blocking(move |inner| inner.find(&key)).await?
    }

    fn current_offset(&self, key: &FeedPartitionKey) -> Option<String> {
        self.inner.ledger.current(key)
    }

    async fn list(&self, plan: &str) -> Result<Vec<PersistOffset>, Error> {
        let plan = plan.to_owned();
        self.blocking(move |inner| inner.disk.read().map(|book| book.of_plan(&plan)))
            .await?
            .map_err(|failure| failure.again())
    }

    async fn delete(&self, key: &FeedPartitionKey) -> Result<(), Error> {
        let key = key.clone();
        self.blocking(move |inner| inner.delete(&key)).await?
    }
}

#[cfg(test)]
mod tests;
