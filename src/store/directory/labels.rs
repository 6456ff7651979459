//! What is known of a blob besides its bytes, in a file of its own under the hidden folder.
//!
//! Owns: the names of the hidden files of a blob, and the format of its labels.
//! Does not own: when they are written; see `publish`.

use std::io;

use cap_std::fs::{Dir, MetadataExt};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use super::{HIDDEN, files};
use crate::model::{BlobName, Metadata};

/// Headers, metadata and version of a blob.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Labels {
    /// The blob's name, for people who look into the folder.
    pub(super) name: String,
    pub(super) etag: String,
    pub(super) len: u64,
    /// CRC-64/NVME of the bytes, in hex.
    pub(super) crc64nvme: String,
    pub(super) content_type: String,
    pub(super) content_encoding: Option<String>,
    pub(super) metadata: Metadata,
}

/// Where the hidden files of one blob are. Hashed, since a name with a suffix may be too long for a file.
pub(super) struct Paths {
    hash: String,
}

impl Paths {
    pub(super) fn of(name: &BlobName) -> Paths {
        let digest = Sha256::digest(name.as_str().as_bytes());
        Paths { hash: digest.iter().map(|byte| format!("{byte:02x}")).collect() }
    }

    pub(super) fn labels_folder(&self) -> String {
        format!("{HIDDEN}/labels/{}", &self.hash[..2])
    }

    /// The labels' name in their folder.
    pub(super) fn labels(&self) -> String {
        format!("{}.json", self.hash)
    }

    /// The name of labels whose blob may not be in place yet.
    pub(super) fn pending(&self) -> String {
        format!("{}.pending", self.hash)
    }

    pub(super) fn lock(&self) -> String {
        format!("{HIDDEN}/locks/{}", &self.hash[..2])
    }

    pub(super) fn staged(&self) -> String {
        format!("{HIDDEN}/staged/{}", self.hash)
    }
}

/// The labels in the file `name`, if there are any.
pub(super) fn read(folder: &Dir, name: &str) -> io::Result<Option<Labels>> {
    match folder.read(name) {
        Ok(bytes) => serde_json::from_slice(&bytes).map(Some).map_err(io::Error::other),
        Err(error) if files::is_absent(&error) => Ok(None),
        Err(error) => Err(error),
    }
}

/// Labels for a file that somebody else put there: its version is what the file system knows of it.
pub(super) fn foreign(container: &Dir, name: &BlobName) -> io::Result<Option<Labels>> {
    let found = match container.symlink_metadata(name.as_str()) {
        Ok(found) if found.is_file() => found,
        Ok(_) => return Ok(None),
        Err(error) if files::is_absent(&error) => return Ok(None),
        Err(error) => return Err(error),
    };
    let (inode, changed, nanos) = (found.ino(), found.mtime(), found.mtime_nsec());
    Ok(Some(Labels {
        name: name.as_str().to_owned(),
        etag: format!("\"file-{inode:x}-{changed:x}-{nanos:x}-{:x}\"", found.len()),
        len: found.len(),
        crc64nvme: String::new(),
        content_type: "application/octet-stream".to_owned(),
        content_encoding: None,
        metadata: Metadata::new(),
    }))
}
