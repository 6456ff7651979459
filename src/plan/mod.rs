//! The plan: one checked configuration.
//!
//! Owns: the plan's types with every default applied, reading a plan file, its checks, its description.
//! Does not own: connections to anything; `check` without `--connect` works offline.
//!
//! A plan is read in layers, the later one wins: defaults, the file, `BLOBFEED__...` variables. The layers are merged as
//! a tree of plain values; then secrets are put in, and small readers turn the tree into types. Readers never stop at
//! the first fault: whoever fixes a plan wants to see all of them.

mod azure;
mod duplicates;
mod fault;
mod feeds;
mod kafka;
mod keys;
mod meet;
mod memory;
mod names;
mod overrides;
mod parts;
mod read;
mod secrets;
mod section;
mod source;
mod storage;
mod summary;
mod top;
mod transport;
mod tree;
mod types;
mod units;

use std::collections::BTreeMap;
use std::path::Path;

use fault::Report;

pub use fault::{Fault, Faults, Note};
pub use keys::{SHAPES, Shape};
pub use memory::MemoryShares;
pub use source::Syntax;
pub use summary::{FeedSummary, Summary};
pub use types::*;

/// A plan without faults, and what its author should know about it all the same.
#[derive(Debug, Clone, PartialEq)]
pub struct Loaded {
    /// The plan.
    pub plan: Plan,
    /// Remarks, in the order of the plan's sections.
    pub notes: Vec<Note>,
}

impl Loaded {
    /// What the plan will do, for people ([`std::fmt::Display`]) and programs (`serde`). Contains no secrets.
    pub fn summary(&self) -> Summary {
        Summary::of(&self.plan, &self.notes)
    }
}

/// Reads the plan at `path` with the variables of this process.
///
/// # Errors
/// [`Faults`], all of them at once.
pub fn load_from_environment(path: &Path) -> Result<Loaded, Faults> {
    // Variables that are not Unicode cannot be named in a plan; to it they do not exist.
    load(path, std::env::vars_os().filter_map(|(k, v)| Some((k.into_string().ok()?, v.into_string().ok()?))))
}

/// Reads the plan at `path`, in the syntax that its extension names (`toml`, `yaml`, `yml`, `json`).
///
/// `env` holds the variables that overrides and `${env:NAME}` are taken from.
///
/// # Errors
/// [`Faults`], all of them at once.
pub fn load(path: &Path, env: impl IntoIterator<Item = (String, String)>) -> Result<Loaded, Faults> {
    let name = path.display().to_string();
    let (syntax, text) = match source::read(path) {
        Ok(read) => read,
        Err(faults) => return Err(Faults { plan: name, faults }),
    };
    let folder = path.parent().unwrap_or(Path::new(""));
    load_text(&name, &text, syntax, folder, env)
}

/// Reads a plan from `text`; `name` is what faults call it, and relative paths in it start at `folder`.
///
/// # Errors
/// [`Faults`], all of them at once.
pub fn load_text(
    name: &str,
    text: &str,
    syntax: Syntax,
    folder: &Path,
    env: impl IntoIterator<Item = (String, String)>,
) -> Result<Loaded, Faults> {
    let env: BTreeMap<String, String> = env.into_iter().collect();
    let (mut root, origins) =
        source::parse(text, syntax).map_err(|faults| Faults { plan: name.to_owned(), faults })?;
    let mut report = Report::new(origins);
    overrides::apply(&mut root, &env, &mut report);
    secrets::resolve(&mut root, &env, folder, &report);
    let plan = top::plan(root, folder, &report);
    let (faults, notes) = report.into_parts();
    match plan {
        Some(plan) if faults.is_empty() => Ok(Loaded { plan, notes }),
        _ => Err(Faults { plan: name.to_owned(), faults }),
    }
}
