//! Blocks on disk that are not part of a blob yet.
//!
//! Owns: the folder of staged blocks of each blob, and the removal of what nobody will commit.
//! Does not own: blobs.
//! Crash: a block is there whole or not at all; what was answered is durable.

use std::io;
use std::path::Path;
use std::time::{Duration, SystemTime};

use cap_std::fs::Dir;
use tracing::warn;

use super::files::{self, Temporary};
use super::labels::Paths;
use super::{HIDDEN, files::make_folders};
use crate::model::{BlobRef, BlockContent, BlockId};

/// Azure forgets blocks that are not committed for a week.
const LIFE: Duration = Duration::from_secs(7 * 24 * 3600);

/// Writes one block.
pub(super) fn stage(container: &Dir, blob: &BlobRef, id: &BlockId, content: &BlockContent) -> io::Result<()> {
    let staged = Paths::of(&blob.name).staged();
    let bytes = Temporary::with(container, content.chunks())?;
    // A commit of the same blob may take the folder away.
    files::while_vanishing(|| {
        make_folders(container, &staged)?;
        let folder = container.open_dir(&staged)?;
        bytes.replace(&folder, id.as_str())?;
        files::sync_folder(&folder)
    })
}

/// The blocks' bytes in the order of `ids`; `None` when a block is not there.
pub(super) fn join(container: &Dir, blob: &BlobRef, ids: &[BlockId]) -> io::Result<Option<Temporary>> {
    let folder = match container.open_dir(Paths::of(&blob.name).staged()) {
        Ok(folder) => folder,
        Err(error) if files::is_absent(&error) => return Ok(None),
        Err(error) => return Err(error),
    };
    for id in ids {
        if !folder.try_exists(id.as_str())? {
            return Ok(None);
        }
    }
    match Temporary::joined(container, ids.iter().map(|id| folder.open(id.as_str()))) {
        Ok(joined) => Ok(Some(joined)),
        // Taken away by a rival's commit since we looked.
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

/// Removes all blocks of a blob that was just committed, as Azure does.
pub(super) fn forget(container: &Dir, paths: &Paths) {
    // Moved away first, in one step: a rival who stages now begins with an empty folder.
    let trash = format!("{HIDDEN}/trash-{:032x}", rand::random::<u128>());
    let result = match container.rename(paths.staged(), container, &trash) {
        Ok(()) => container.remove_dir_all(&trash),
        Err(error) if files::is_absent(&error) => Ok(()),
        Err(error) => Err(error),
    };
    if let Err(error) = result {
        warn!(%error, "staged blocks of a committed blob are left over, to be removed in a week");
    }
}

/// Removes what crashes left in any container, when it is old enough that nobody can still want it.
pub(super) fn sweep(root: &Dir, now: SystemTime) {
    let containers = root.entries().into_iter().flatten().flatten();
    for container in containers {
        let Ok(container) = container.open_dir() else { continue };
        let Ok(hidden) = container.open_dir(HIDDEN) else { continue };
        if let Err(error) = sweep_hidden(&hidden, now) {
            warn!(%error, "left-overs in the directory store could not be removed");
        }
    }
}

fn sweep_hidden(hidden: &Dir, now: SystemTime) -> io::Result<()> {
    for entry in hidden.entries()? {
        let name = entry?.file_name();
        let text = name.to_string_lossy();
        if text == "tmp" {
            remove_old(hidden, Path::new(&name), now)?;
        } else if text == "staged" {
            for blob in hidden.read_dir(&name)? {
                remove_old(hidden, &Path::new(&name).join(blob?.file_name()), now)?;
            }
        } else if text.starts_with("trash-") {
            hidden.remove_dir_all(&name)?;
        }
    }
    Ok(())
}

/// Removes the old files of a folder, and the folder when it is empty then.
fn remove_old(hidden: &Dir, path: &Path, now: SystemTime) -> io::Result<()> {
    for entry in hidden.read_dir(path)? {
        let entry = entry?;
        let changed = entry.metadata()?.modified()?.into_std();
        if now.duration_since(changed).unwrap_or_default() > LIFE {
            entry.remove_file()?;
        }
    }
    // Others may be staging into it: then it is not empty, and stays.
    let _ = hidden.remove_dir(path);
    Ok(())
}
