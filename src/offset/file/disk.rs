//! The offset file on disk: read whole, replaced whole, one process at a time.
//!
//! Owns: the lock file, the temporary file, the meaning of I/O errors.
//! Does not own: what is in the file.
//! Crash: before the rename the old file stands, after it the new one; a temporary file that is left is overwritten.

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, ErrorKind, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::book::Book;
use crate::offset::Error;

/// How long another process may hold the lock. It holds it for one write, so longer means that it hangs.
const LOCK_PATIENCE: Duration = Duration::from_secs(5);
/// Owner reads and writes, the group reads.
const MODE: u32 = 0o640;

/// Where the file and its companions are.
pub(super) struct Disk {
    path: PathBuf,
    lock: PathBuf,
    temporary: PathBuf,
    folder: PathBuf,
    pub(super) patience: Duration,
}

/// Nobody else writes the file while this lives.
pub(super) struct Lock {
    // Closing it is what unlocks it.
    _file: File,
}

/// An error of the file that many entries have in common.
#[derive(Debug)]
pub(super) enum Failure {
    Io { store: String, fault: Arc<IoFault> },
    Corrupt { store: String, place: String, reason: String },
}

#[derive(Debug, thiserror::Error)]
#[error("cannot {what} {}", path.display())]
pub(super) struct IoFault {
    what: &'static str,
    path: PathBuf,
    #[source]
    source: io::Error,
}

/// Why the file was not replaced.
#[derive(Debug)]
pub(super) enum ReplaceError {
    /// The old content is intact.
    Unchanged(Failure),
    /// The new content stands, but may be gone after a power failure.
    Unclear(Failure),
}

impl ReplaceError {
    pub(super) fn cause(&self) -> &Failure {
        match self {
            ReplaceError::Unchanged(failure) | ReplaceError::Unclear(failure) => failure,
        }
    }
}

impl Failure {
    /// This failure as the error of one of the entries.
    pub(super) fn again(&self) -> Error {
        match self {
            Failure::Corrupt { store, place, reason } => {
                Error::Corrupt { store: store.clone(), place: place.clone(), reason: reason.clone() }
            }
            Failure::Io { store, fault } => match fault.source.kind() {
                ErrorKind::PermissionDenied | ErrorKind::ReadOnlyFilesystem => Error::Denied {
                    store: store.clone(),
                    hint: format!("{fault}: the process needs to write that folder and its files"),
                },
                ErrorKind::IsADirectory | ErrorKind::NotADirectory => {
                    Error::Configuration { reason: format!("{fault}: {}", fault.source) }
                }
                _ => Error::Unavailable { store: store.clone(), source: Box::new(fault.clone()) },
            },
        }
    }
}

impl Disk {
    pub(super) fn new(path: &Path) -> Result<Disk, Error> {
        let wrong = |reason: &str| {
            Err(Error::Configuration {
                reason: format!("path = {path:?} {reason}; name a file, such as offsets.json"),
            })
        };
        let (Some(name), Some(folder)) = (path.file_name(), path.parent()) else {
            return wrong("does not name a file");
        };
        if path.as_os_str().as_encoded_bytes().ends_with(b"/") {
            return wrong("names a folder");
        }
        let beside = |suffix: &str| {
            let mut name = name.to_owned();
            name.push(suffix);
            path.with_file_name(name)
        };
        let folder = if folder.as_os_str().is_empty() { Path::new(".") } else { folder };
        Ok(Disk {
            lock: beside(".lock"),
            temporary: beside(".tmp"),
            folder: folder.to_owned(),
            path: path.to_owned(),
            patience: LOCK_PATIENCE,
        })
    }

    fn store(&self) -> String {
        format!("file {}", self.path.display())
    }

    pub(super) fn unavailable(&self, source: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Error {
        Error::Unavailable { store: self.store(), source: source.into() }
    }

    fn fault<'a>(&'a self, what: &'static str, path: &'a Path) -> impl Fn(io::Error) -> Failure + 'a {
        move |source| Failure::Io {
            store: self.store(),
            fault: Arc::new(IoFault { what, path: path.to_owned(), source }),
        }
    }

    /// Waits until no other process writes the file; the folder is made when it is absent.
    pub(super) fn lock(&self) -> Result<Lock, Failure> {
        fs::create_dir_all(&self.folder).map_err(self.fault("make the folder", &self.folder))?;
        let open = || OpenOptions::new().create(true).append(true).mode(MODE).open(&self.lock);
        let file = open().map_err(self.fault("open the lock file", &self.lock))?;
        let deadline = Instant::now() + self.patience;
        loop {
            let error = match file.try_lock() {
                Ok(()) => return Ok(Lock { _file: file }),
                Err(TryLockError::WouldBlock) if Instant::now() < deadline => {
                    std::thread::sleep(Duration::from_millis(5));
                    continue;
                }
                Err(TryLockError::WouldBlock) => io::Error::new(
                    ErrorKind::WouldBlock,
                    format!("another process has held it for {:?}", self.patience),
                ),
                Err(TryLockError::Error(error)) => error,
            };
            return Err(self.fault("lock", &self.lock)(error));
        }
    }

    /// What the file holds; an absent file holds nothing.
    pub(super) fn read(&self) -> Result<Book, Failure> {
        let bytes = match fs::read(&self.path) {
            Ok(bytes) => bytes,
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Book::new()),
            Err(error) => return Err(self.fault("read", &self.path)(error)),
        };
        Book::parse(&bytes).map_err(|reason| Failure::Corrupt {
            store: self.store(),
            place: self.path.display().to_string(),
            reason: format!(
                "{reason}; put back a copy, or move it away to begin without offsets: it is left as it is"
            ),
        })
    }

    /// Puts `book` in the place of what the file holds. The lock shows that this is the only writer.
    pub(super) fn replace(&self, _: &Lock, book: &Book) -> Result<(), ReplaceError> {
        self.write_temporary(&book.to_bytes()).map_err(ReplaceError::Unchanged)?;
        fs::rename(&self.temporary, &self.path)
            .map_err(self.fault("replace", &self.path))
            .map_err(ReplaceError::Unchanged)?;
        // The rename itself is durable only when the folder is.
        File::open(&self.folder)
            .and_then(|folder| folder.sync_all())
            .map_err(self.fault("sync", &self.folder))
            .map_err(ReplaceError::Unclear)
    }

    fn write_temporary(&self, bytes: &[u8]) -> Result<(), Failure> {
        let fault = self.fault("write", &self.temporary);
        match fs::remove_file(&self.temporary) {
            Err(error) if error.kind() != ErrorKind::NotFound => return Err(fault(error)),
            _ => {}
        }
        // A new file, or none: a link that somebody put there is not followed.
        let open = OpenOptions::new().create_new(true).write(true).mode(MODE).open(&self.temporary);
        open.and_then(|mut file| {
            file.write_all(bytes)?;
            file.sync_all()
        })
        .map_err(|error| {
            // Half a file is of no use, and on a full disk its bytes are.
            let _ = fs::remove_file(&self.temporary);
            fault(error)
        })
    }
}
