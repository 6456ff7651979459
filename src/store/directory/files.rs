//! Files and folders as the directory store wants them: private, durable, and never half there.

use std::io::{self, Read, Write};
use std::path::Path;

use bytes::Bytes;
use cap_std::fs::{Dir, DirBuilder, DirBuilderExt, File, OpenOptions, OpenOptionsExt};
use crc64fast_nvme::Digest;

use super::HIDDEN;

/// Bytes that are written and synced, under a hidden name that is removed unless they are moved away.
pub(super) struct Temporary {
    folder: Dir,
    name: String,
    /// Bytes in it.
    pub(super) len: u64,
    /// CRC-64/NVME of the bytes.
    pub(super) crc: u64,
}

impl Temporary {
    /// `chunks`, one after the other.
    pub(super) fn with(container: &Dir, chunks: &[Bytes]) -> io::Result<Temporary> {
        let (mut this, mut file) = Temporary::create(container)?;
        let mut digest = Digest::new();
        for chunk in chunks {
            digest.write(chunk);
            file.write_all(chunk)?;
        }
        file.sync_all()?;
        this.len = chunks.iter().map(|chunk| chunk.len() as u64).sum();
        this.crc = digest.sum64();
        Ok(this)
    }

    /// What `parts` hold, one after the other.
    pub(super) fn joined(
        container: &Dir,
        parts: impl Iterator<Item = io::Result<File>>,
    ) -> io::Result<Temporary> {
        let (mut this, mut file) = Temporary::create(container)?;
        let mut digest = Digest::new();
        let mut buffer = vec![0; 1 << 20];
        for part in parts {
            let mut part = part?;
            loop {
                let n = match part.read(&mut buffer) {
                    Ok(0) => break,
                    Ok(n) => n,
                    Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                    Err(error) => return Err(error),
                };
                digest.write(&buffer[..n]);
                file.write_all(&buffer[..n])?;
                this.len += n as u64;
            }
        }
        file.sync_all()?;
        this.crc = digest.sum64();
        Ok(this)
    }

    fn create(container: &Dir) -> io::Result<(Temporary, File)> {
        let path = format!("{HIDDEN}/tmp");
        let name = format!("{:032x}", rand::random::<u128>());
        let mut options = OpenOptions::new();
        options.write(true).create_new(true).mode(0o640);
        // Another process that starts may sweep the folder away while it is empty.
        let (folder, file) = while_vanishing(|| {
            make_folders(container, &path)?;
            let folder = container.open_dir(&path)?;
            let file = folder.open_with(&name, &options)?;
            Ok((folder, file))
        })?;
        Ok((Temporary { folder, name, len: 0, crc: Digest::new().sum64() }, file))
    }

    /// Moves the bytes to `name` in `to`, over what is there.
    pub(super) fn replace(&self, to: &Dir, name: impl AsRef<Path>) -> io::Result<()> {
        self.folder.rename(&self.name, to, name)
    }

    /// Moves the bytes to `name` in `to`, where nothing may be yet.
    pub(super) fn place(&self, to: &Dir, name: impl AsRef<Path>) -> io::Result<()> {
        // A link does not replace, a rename would. The old name goes when `self` does.
        self.folder.hard_link(&self.name, to, name)
    }
}

impl Drop for Temporary {
    fn drop(&mut self) {
        // Gone already when it was moved; else it is garbage, which the sweep removes later if this fails.
        let _ = self.folder.remove_file(&self.name);
    }
}

/// Makes the folder at `path` and those above it; each that is new is durable when this returns.
pub(super) fn make_folders(dir: &Dir, path: &str) -> io::Result<()> {
    if dir.is_dir(path) {
        return Ok(());
    }
    let mut builder = DirBuilder::new();
    builder.mode(0o750);
    let ends = path.match_indices('/').map(|(at, _)| at).chain([path.len()]);
    let mut parent = ".";
    for end in ends {
        let folder = &path[..end];
        match dir.create_dir_with(folder, &builder) {
            Ok(()) => sync_folder(&dir.open_dir(parent)?)?,
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            Err(error) => return Err(error),
        }
        parent = folder;
    }
    // A file of that name is no folder.
    dir.open_dir(path).map(drop)
}

/// Makes durable which names are in a folder.
pub(super) fn sync_folder(folder: &Dir) -> io::Result<()> {
    // Opened anew: the handle of a folder may be one that can only name files, not sync.
    folder.open(".")?.sync_all()
}

/// Length of the ordinary file at `name`; `None` when nothing or something else is there.
pub(super) fn len_of_file(dir: &Dir, name: &str) -> io::Result<Option<u64>> {
    match dir.symlink_metadata(name) {
        Ok(found) => Ok(found.is_file().then(|| found.len())),
        Err(error) if is_absent(&error) => Ok(None),
        Err(error) => Err(error),
    }
}

/// Whether the error says that there is no such file; a name below a file does not exist either.
pub(super) fn is_absent(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::NotFound | io::ErrorKind::NotADirectory | io::ErrorKind::InvalidFilename
    )
}

/// Runs `act` again while the folder that it works in is taken away under it.
pub(super) fn while_vanishing<T>(mut act: impl FnMut() -> io::Result<T>) -> io::Result<T> {
    for _ in 0..100 {
        match act() {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            other => return other,
        }
    }
    act()
}
