//! Puts a blob and its labels in place as one, or takes them away.
//!
//! Owns: the order of the steps, the lock around them, and what a crash between them leaves.
//! Does not own: the bytes; they are written and synced before.
//! Crash: the labels are durable as *pending* before the bytes are moved to the blob's name, and lose that word after
//! it. Pending labels without a live writer are kept if they describe the bytes in place (length and CRC), else removed.

use std::io;
use std::path::Path;
use std::time::SystemTime;

use cap_std::fs::{Dir, OpenOptions, OpenOptionsExt};
use crc64fast_nvme::Digest;

use super::files::{self, Temporary};
use super::labels::{self, Labels, Paths};
use super::{HIDDEN, disk};
use crate::model::{BlobHeaders, BlobRef, Metadata};
use crate::store::{Condition, Error, Written, admit};

/// A blob that is to be written.
pub(super) struct Write<'a> {
    pub(super) operation: &'static str,
    pub(super) blob: &'a BlobRef,
    pub(super) headers: &'a BlobHeaders,
    pub(super) metadata: &'a Metadata,
    pub(super) condition: &'a Condition,
}

impl Write<'_> {
    /// Whether the condition holds now.
    pub(super) fn admit(&self, container: &Dir) -> Result<(), Error> {
        let present = present(container, self.blob).map_err(disk(self.operation, self.blob))?;
        admit(self.blob, self.condition, present.as_ref().map(|labels| labels.etag.as_str()))
    }

    /// Makes `content` the blob if the condition holds, and forgets the blocks that are staged for it.
    pub(super) fn publish(&self, container: &Dir, content: Temporary) -> Result<Written, Error> {
        let failed = disk(self.operation, self.blob);
        let _lock = lock(container, self.blob).map_err(&failed)?;
        let paths = Paths::of(&self.blob.name);
        recover(container, self.blob).map_err(&failed)?;
        let before = labels_in_place(container, self.blob).map_err(&failed)?;
        admit(self.blob, self.condition, before.as_ref().map(|labels| labels.etag.as_str()))?;

        let etag = format!("\"{:032x}\"", rand::random::<u128>());
        let labels = Labels {
            name: self.blob.name.as_str().to_owned(),
            etag: etag.clone(),
            len: content.len,
            crc64nvme: format!("{:016x}", content.crc),
            content_type: self.headers.content_type.clone(),
            content_encoding: self.headers.content_encoding.clone(),
            metadata: self.metadata.clone(),
        };
        let announce = || -> io::Result<()> {
            let folder = make_and_open(container, &paths.labels_folder())?;
            let text = serde_json::to_vec_pretty(&labels).map_err(io::Error::other)?;
            Temporary::with(container, &[text.into()])?.replace(&folder, paths.pending())?;
            files::sync_folder(&folder)
        };
        announce().map_err(&failed)?;
        let placed = place(container, self.blob.name.as_str(), &content, before.is_some());
        if let Err(error) = placed {
            // Whatever is in place now, it is not what the pending labels say, or it is and they are kept.
            let _ = recover(container, self.blob);
            return Err(match error.kind() {
                io::ErrorKind::AlreadyExists if container.is_dir(self.blob.name.as_str()) => {
                    failed(io::ErrorKind::IsADirectory.into())
                }
                // Another program, which knows nothing of the lock, was faster.
                io::ErrorKind::AlreadyExists if *self.condition == Condition::Absent => {
                    Error::AlreadyExists { blob: self.blob.to_string() }
                }
                _ => failed(error),
            });
        }
        confirm(container, &paths).map_err(&failed)?;
        super::staging::forget(container, &paths);
        Ok(Written { etag, date: SystemTime::now() })
    }
}

/// What is known of the blob in place, none of it half written.
pub(super) fn present(container: &Dir, blob: &BlobRef) -> io::Result<Option<Labels>> {
    let paths = Paths::of(&blob.name);
    {
        let _lock = shared_lock(container, &paths)?;
        let pending = Path::new(&paths.labels_folder()).join(paths.pending());
        if !container.try_exists(pending)? {
            return labels_in_place(container, blob);
        }
    }
    // A live writer would hold the lock: this one died between its steps.
    let _lock = lock(container, blob)?;
    recover(container, blob)?;
    labels_in_place(container, blob)
}

/// Removes the blob and its labels; absent is no error.
pub(super) fn delete(container: &Dir, blob: &BlobRef) -> io::Result<()> {
    let _lock = lock(container, blob)?;
    recover(container, blob)?;
    let name = blob.name.as_str();
    if files::len_of_file(container, name)?.is_none() {
        return Ok(());
    }
    container.remove_file(name)?;
    let (parent, _) = split(name);
    files::sync_folder(&container.open_dir(parent)?)?;
    let paths = Paths::of(&blob.name);
    let labels = Path::new(&paths.labels_folder()).join(paths.labels());
    match container.remove_file(labels) {
        Err(error) if !files::is_absent(&error) => Err(error),
        _ => Ok(()),
    }
}

fn place(container: &Dir, name: &str, content: &Temporary, over: bool) -> io::Result<()> {
    let (parent, file) = split(name);
    files::make_folders(container, parent)?;
    let folder = container.open_dir(parent)?;
    if over {
        content.replace(&folder, file)?;
    } else {
        content.place(&folder, file)?;
    }
    files::sync_folder(&folder)
}

/// The pending labels describe what is in place.
fn confirm(container: &Dir, paths: &Paths) -> io::Result<()> {
    let folder = container.open_dir(paths.labels_folder())?;
    folder.rename(paths.pending(), &folder, paths.labels())
}

/// Settles what a writer left that died between its steps. Only under the lock.
fn recover(container: &Dir, blob: &BlobRef) -> io::Result<()> {
    let paths = Paths::of(&blob.name);
    let folder = match container.open_dir(paths.labels_folder()) {
        Ok(folder) => folder,
        Err(error) if files::is_absent(&error) => return Ok(()),
        Err(error) => return Err(error),
    };
    let pending = match labels::read(&folder, &paths.pending()) {
        Ok(None) => return Ok(()),
        Ok(Some(pending)) => pending,
        Err(error) if error.kind() == io::ErrorKind::Other => return folder.remove_file(paths.pending()),
        Err(error) => return Err(error),
    };
    let name = blob.name.as_str();
    if files::len_of_file(container, name)? == Some(pending.len)
        && crc_of(container, name)? == pending.crc64nvme
    {
        // What is visible from now on must survive the next power cut.
        files::sync_folder(&container.open_dir(split(name).0)?)?;
        return confirm(container, &paths);
    }
    folder.remove_file(paths.pending())
}

fn crc_of(container: &Dir, name: &str) -> io::Result<String> {
    let mut digest = Digest::new();
    let mut file = container.open(name)?.into_std();
    std::io::copy(&mut file, &mut DigestWriter(&mut digest))?;
    Ok(format!("{:016x}", digest.sum64()))
}

struct DigestWriter<'a>(&'a mut Digest);

impl io::Write for DigestWriter<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.write(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn labels_in_place(container: &Dir, blob: &BlobRef) -> io::Result<Option<Labels>> {
    let Some(len) = files::len_of_file(container, blob.name.as_str())? else { return Ok(None) };
    let paths = Paths::of(&blob.name);
    let kept = match container.open_dir(paths.labels_folder()) {
        Ok(folder) => labels::read(&folder, &paths.labels())?,
        Err(error) if files::is_absent(&error) => None,
        Err(error) => return Err(error),
    };
    match kept {
        Some(labels) if labels.len == len => Ok(Some(labels)),
        // Another program put its own file there.
        _ => labels::foreign(container, &blob.name),
    }
}

/// Keeps all other writers of the blob, in all processes, waiting until it is dropped.
fn lock(container: &Dir, blob: &BlobRef) -> io::Result<std::fs::File> {
    let file = lock_file(container, &Paths::of(&blob.name))?;
    file.lock()?;
    Ok(file)
}

fn shared_lock(container: &Dir, paths: &Paths) -> io::Result<Option<std::fs::File>> {
    match lock_file(container, paths) {
        Ok(file) => {
            file.lock_shared()?;
            Ok(Some(file))
        }
        // Who may only read can lock nothing.
        Err(error)
            if matches!(
                error.kind(),
                io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem
            ) =>
        {
            Ok(None)
        }
        Err(error) => Err(error),
    }
}

fn lock_file(container: &Dir, paths: &Paths) -> io::Result<std::fs::File> {
    files::make_folders(container, &format!("{HIDDEN}/locks"))?;
    let mut options = OpenOptions::new();
    options.read(true).write(true).create(true).mode(0o640);
    Ok(container.open_with(paths.lock(), &options)?.into_std())
}

fn make_and_open(container: &Dir, path: &str) -> io::Result<Dir> {
    files::make_folders(container, path)?;
    container.open_dir(path)
}

/// The folder of a blob's file, and the file's name in it.
fn split(name: &str) -> (&str, &str) {
    name.rsplit_once('/').unwrap_or((".", name))
}
