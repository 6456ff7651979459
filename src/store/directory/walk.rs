//! Pages of the blobs in a container, in byte order of their names.

use std::io;

use cap_std::fs::Dir;

use super::{files, is_hidden};
use crate::model::BlobName;
use crate::store::Page;

/// Up to `size` names from `start` on that begin with `prefix`. A page is named by its first blob's name.
pub(super) fn page(container: &Dir, prefix: &str, start: Option<&str>, size: usize) -> io::Result<Page> {
    let mut walk = Walk { container, prefix, start: start.unwrap_or(""), limit: size + 1, found: Vec::new() };
    walk.folder("")?;
    let mut names = walk.found;
    let next = if names.len() > size { names.pop().map(|name| name.as_str().to_owned()) } else { None };
    Ok(Page { names, next })
}

struct Walk<'a> {
    container: &'a Dir,
    prefix: &'a str,
    start: &'a str,
    limit: usize,
    found: Vec<BlobName>,
}

impl Walk<'_> {
    /// Looks into the folder whose names all begin with `path`, which is empty or ends with a slash.
    fn folder(&mut self, path: &str) -> io::Result<()> {
        let entries = match self.container.read_dir(if path.is_empty() { "." } else { path }) {
            Ok(entries) => entries,
            // Removed since its name was read.
            Err(error) if files::is_absent(&error) => return Ok(()),
            Err(error) => return Err(error),
        };
        let mut names = Vec::new();
        for entry in entries {
            let entry = entry?;
            let kind = entry.file_type()?;
            // Names that are not UTF-8 cannot be names of blobs; neither are links followed.
            let Ok(name) = entry.file_name().into_string() else { continue };
            if kind.is_file() {
                names.push(format!("{path}{name}"));
            } else if kind.is_dir() && !is_hidden(&format!("{path}{name}")) {
                // With its slash a folder sorts where the names in it do.
                names.push(format!("{path}{name}/"));
            }
        }
        names.sort_unstable();
        for name in names {
            if self.found.len() >= self.limit {
                break;
            }
            if name.ends_with('/') {
                let before_start = name.as_str() < self.start && !self.start.starts_with(&name);
                let in_prefix = name.starts_with(self.prefix) || self.prefix.starts_with(&name);
                if in_prefix && !before_start {
                    self.folder(&name)?;
                }
            } else if name.starts_with(self.prefix) && name.as_str() >= self.start {
                self.found.extend(BlobName::new(name));
            }
        }
        Ok(())
    }
}
