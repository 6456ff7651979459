//! A store in a folder: containers are folders, blobs are ordinary files that any tool can read.
//!
//! Owns: everything below its root; in each container a hidden folder `.blobfeed` with staged blocks, the headers and
//! metadata of blobs, and locks.
//! Does not own: files that others put there; they are listed and read like blobs without metadata.
//! Crash: leaves files in the hidden folder only, or a blob whole. A write between its two renames is finished by the
//! next call on that blob. Left-overs older than a week are removed when the store is opened.
//!
//! A commit copies the blocks once, so the disk needs room for the open blobs twice.
//!
//! Only calls of blobfeed respect each other (by locks of files, across processes). A blob and a folder cannot have
//! the same name, and no segment of a name is longer than the file system allows, mostly 255 bytes.

use std::io::{self, Read, Seek, SeekFrom};
use std::path::Path;
use std::sync::Arc;
use std::time::SystemTime;

use async_trait::async_trait;
use bytes::Bytes;
use cap_std::ambient_authority;
use cap_std::fs::Dir;

use super::{BlobStore, BlockList, Condition, Error, Page, Properties, Written, rules};
use crate::model::{BlobHeaders, BlobRef, BlockContent, BlockId, Metadata};

mod files;
mod labels;
mod publish;
mod staging;
mod walk;

/// The folder in each container that holds what is not a blob.
const HIDDEN: &str = ".blobfeed";

/// Containers in a folder of the file system. Cloning shares it.
///
/// Every path is opened relative to the root, and no link is followed out of it. Files have mode 0640.
#[derive(Clone)]
pub struct DirectoryStore {
    root: Arc<Dir>,
    page_size: usize,
}

impl DirectoryStore {
    /// Opens the folder at `path`, which is made when it is absent, and removes left-overs older than a week.
    ///
    /// # Errors
    /// [`Error::Configuration`] when there is no folder to be had at `path`.
    pub fn open(path: &Path) -> Result<DirectoryStore, Error> {
        let unusable = |error: io::Error| Error::Configuration {
            reason: format!("the folder {} cannot be opened: {error}", path.display()),
        };
        std::fs::create_dir_all(path).map_err(unusable)?;
        let root = Dir::open_ambient_dir(path, ambient_authority()).map_err(unusable)?;
        staging::sweep(&root, SystemTime::now());
        Ok(DirectoryStore { root: Arc::new(root), page_size: 5_000 })
    }

    /// The same store with so many names on a page of a listing.
    #[must_use]
    pub fn with_page_size(mut self, names: usize) -> DirectoryStore {
        self.page_size = names.max(1);
        self
    }

    /// Runs `act` on the container's folder, off the threads of the runtime. It runs to its end even when the caller
    /// goes away.
    async fn on_container<T: Send + 'static>(
        &self,
        operation: &'static str,
        container: &str,
        act: impl FnOnce(&Dir) -> Result<T, Error> + Send + 'static,
    ) -> Result<T, Error> {
        rules::container(container)?;
        let (root, name) = (self.root.clone(), container.to_owned());
        let act = move || match root.open_dir(&name) {
            Ok(folder) => act(&folder),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                Err(Error::ContainerNotFound { container: name })
            }
            Err(source) => Err(Error::Disk { operation, resource: name, source }),
        };
        tokio::task::spawn_blocking(act).await.unwrap_or_else(|lost| {
            let source = io::Error::other(lost);
            Err(Error::Disk { operation, resource: container.to_owned(), source })
        })
    }
}

/// An error of the disk, told in the words of the call.
fn disk(operation: &'static str, blob: &BlobRef) -> impl Fn(io::Error) -> Error {
    move |source| match source.kind() {
        io::ErrorKind::InvalidFilename => {
            let message = "the file system does not take so long a name".to_owned();
            rules::refused(operation, blob, "InvalidResourceName", message)
        }
        io::ErrorKind::NotADirectory | io::ErrorKind::IsADirectory => {
            let message = "a blob and a folder cannot have one name in a directory".to_owned();
            rules::refused(operation, blob, "InvalidResourceName", message)
        }
        _ => Error::Disk { operation, resource: blob.to_string(), source },
    }
}

/// Names that begin with the hidden folder are not blobs.
fn check_name(operation: &'static str, blob: &BlobRef) -> Result<(), Error> {
    match is_hidden(blob.name.as_str()) {
        false => Ok(()),
        true => {
            let message = format!("names in {HIDDEN}/ are taken by the directory store itself");
            Err(rules::refused(operation, blob, "InvalidResourceName", message))
        }
    }
}

fn is_hidden(name: &str) -> bool {
    name.strip_prefix(HIDDEN).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

#[async_trait]
impl BlobStore for DirectoryStore {
    async fn ensure_container(&self, container: &str, create: bool) -> Result<(), Error> {
        let operation = "Create Container";
        rules::container(container)?;
        if create {
            let (root, name) = (self.root.clone(), container.to_owned());
            let made = tokio::task::spawn_blocking(move || files::make_folders(&root, &name)).await;
            made.unwrap_or_else(|lost| Err(io::Error::other(lost))).map_err(|source| Error::Disk {
                operation,
                resource: container.to_owned(),
                source,
            })?;
        }
        self.on_container(operation, container, |_| Ok(())).await
    }

    async fn stage_block(
        &self,
        blob: &BlobRef,
        id: &BlockId,
        content: &BlockContent,
    ) -> Result<Written, Error> {
        let operation = "Put Block";
        check_name(operation, blob)?;
        rules::block(blob, content)?;
        let (blob, id, content) = (blob.clone(), id.clone(), content.clone());
        self.on_container(operation, &blob.container.clone(), move |folder| {
            staging::stage(folder, &blob, &id, &content).map_err(disk(operation, &blob))?;
            Ok(Written { etag: String::new(), date: SystemTime::now() })
        })
        .await
    }

    async fn commit_block_list(&self, blob: &BlobRef, list: &BlockList) -> Result<Written, Error> {
        let operation = "Put Block List";
        check_name(operation, blob)?;
        rules::block_list(blob, list)?;
        let (blob, list) = (blob.clone(), list.clone());
        self.on_container(operation, &blob.container.clone(), move |folder| {
            let write = publish::Write {
                operation,
                blob: &blob,
                headers: &list.headers,
                metadata: &list.metadata,
                condition: &list.condition,
            };
            // Asked twice: here so that a lost race costs no copy, and again when it counts.
            write.admit(folder)?;
            let joined = staging::join(folder, &blob, &list.blocks).map_err(disk(operation, &blob))?;
            let content = joined.ok_or_else(|| Error::UnknownBlock { blob: blob.to_string() })?;
            write.publish(folder, content)
        })
        .await
    }

    async fn put(
        &self,
        blob: &BlobRef,
        content: Bytes,
        headers: &BlobHeaders,
        metadata: &Metadata,
        condition: &Condition,
    ) -> Result<Written, Error> {
        let operation = "Put Blob";
        check_name(operation, blob)?;
        rules::metadata(operation, blob, metadata)?;
        let blob = blob.clone();
        let (headers, metadata, condition) = (headers.clone(), metadata.clone(), condition.clone());
        self.on_container(operation, &blob.container.clone(), move |folder| {
            let write = publish::Write {
                operation,
                blob: &blob,
                headers: &headers,
                metadata: &metadata,
                condition: &condition,
            };
            write.admit(folder)?;
            let content = files::Temporary::with(folder, &[content]).map_err(disk(operation, &blob))?;
            write.publish(folder, content)
        })
        .await
    }

    async fn properties(&self, blob: &BlobRef) -> Result<Option<Properties>, Error> {
        let operation = "Get Blob Properties";
        check_name(operation, blob)?;
        let blob = blob.clone();
        self.on_container(operation, &blob.container.clone(), move |folder| {
            let present = publish::present(folder, &blob).map_err(disk(operation, &blob))?;
            Ok(present.map(|labels| Properties {
                etag: labels.etag,
                len: labels.len,
                headers: BlobHeaders {
                    content_type: labels.content_type,
                    content_encoding: labels.content_encoding,
                },
                metadata: labels.metadata,
                date: SystemTime::now(),
            }))
        })
        .await
    }

    async fn read(&self, blob: &BlobRef, from: u64, max: u64) -> Result<Option<Bytes>, Error> {
        let operation = "Get Blob";
        check_name(operation, blob)?;
        let blob = blob.clone();
        self.on_container(operation, &blob.container.clone(), move |folder| {
            read_range(folder, blob.name.as_str(), from, max).map_err(disk(operation, &blob))
        })
        .await
    }

    async fn list(&self, container: &str, prefix: &str, page: Option<&str>) -> Result<Page, Error> {
        let (prefix, start, size) = (prefix.to_owned(), page.map(str::to_owned), self.page_size);
        let resource = container.to_owned();
        let operation = "List Blobs";
        self.on_container(operation, container, move |folder| {
            walk::page(folder, &prefix, start.as_deref(), size).map_err(|source| Error::Disk {
                operation,
                resource,
                source,
            })
        })
        .await
    }

    async fn delete(&self, blob: &BlobRef) -> Result<(), Error> {
        let operation = "Delete Blob";
        check_name(operation, blob)?;
        let blob = blob.clone();
        self.on_container(operation, &blob.container.clone(), move |folder| {
            publish::delete(folder, &blob).map_err(disk(operation, &blob))
        })
        .await
    }
}

fn read_range(folder: &Dir, name: &str, from: u64, max: u64) -> io::Result<Option<Bytes>> {
    let Some(len) = files::len_of_file(folder, name)? else { return Ok(None) };
    let mut file = match folder.open(name) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error),
    };
    file.seek(SeekFrom::Start(from))?;
    let expected = max.min(len.saturating_sub(from));
    let mut bytes = Vec::with_capacity(usize::try_from(expected).unwrap_or_default());
    file.take(max).read_to_end(&mut bytes)?;
    Ok(Some(Bytes::from(bytes)))
}

#[cfg(test)]
mod tests;
