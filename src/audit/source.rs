//! Where a blob's bytes and metadata come from: a file, or a store.

use std::fs::File;
use std::io::{self, BufReader, Read};
use std::path::{Path, PathBuf};

use bytes::{Buf as _, Bytes};
use tokio::runtime::Handle;

use crate::model::{BlobName, BlobRef, Metadata};
use crate::store::{BlobStore as _, DirectoryStore, SharedStore};

/// How much is asked of a store at once.
const PIECE: u64 = 4 << 20;

/// A file that cannot be opened.
#[derive(Debug, thiserror::Error)]
#[error("{} cannot be opened", path.display())]
pub struct FileError {
    path: PathBuf,
    #[source]
    source: io::Error,
}

/// A blob as a file, in a directory store or anywhere.
pub struct BlobFile {
    /// Its bytes.
    pub content: BufReader<File>,
    /// Its metadata, if a directory store keeps it.
    pub metadata: Metadata,
}

impl BlobFile {
    /// Opens the file at `path`.
    ///
    /// # Errors
    /// [`FileError`] with the system's answer.
    pub async fn open(path: &Path) -> Result<BlobFile, FileError> {
        let failed = |source| FileError { path: path.to_owned(), source };
        let file = File::open(path).map_err(failed)?;
        if file.metadata().map_err(failed)?.is_dir() {
            return Err(failed(io::ErrorKind::IsADirectory.into()));
        }
        let metadata = stored_metadata(path).await.unwrap_or_default();
        Ok(BlobFile { content: BufReader::with_capacity(1 << 20, file), metadata })
    }
}

// A directory store's containers have a hidden folder; the blob's name is the path below such a container.
async fn stored_metadata(path: &Path) -> Option<Metadata> {
    let path = path.canonicalize().ok()?;
    let container = path.ancestors().skip(1).find(|folder| folder.join(".blobfeed").is_dir())?;
    let name = path.strip_prefix(container).ok()?.to_str()?;
    let blob =
        BlobRef { container: container.file_name()?.to_str()?.into(), name: BlobName::new(name).ok()? };
    let store = DirectoryStore::open(container.parent()?).ok()?;
    Some(store.properties(&blob).await.ok()??.metadata)
}

/// A blob in a store, read piece by piece. For threads that may block.
pub struct BlobSource {
    store: SharedStore,
    runtime: Handle,
    blob: BlobRef,
    at: u64,
    piece: Bytes,
}

impl BlobSource {
    /// Reads `blob` from its start.
    pub fn new(store: SharedStore, runtime: Handle, blob: BlobRef) -> BlobSource {
        BlobSource { store, runtime, blob, at: 0, piece: Bytes::new() }
    }
}

impl Read for BlobSource {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if self.piece.is_empty() {
            let piece = self.runtime.block_on(self.store.read(&self.blob, self.at, PIECE));
            self.piece = piece.map_err(io::Error::other)?.ok_or(io::ErrorKind::NotFound)?;
            self.at += self.piece.len() as u64;
        }
        let len = buffer.len().min(self.piece.len());
        self.piece.copy_to_slice(&mut buffer[..len]);
        Ok(len)
    }
}
