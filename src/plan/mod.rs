//! The plan: one checked configuration.
//!
//! Owns: the plan's types with every default applied, reading a plan file, its checks.
//! Does not own: connections to anything; `check` without `--connect` works offline.

mod types;

pub use types::*;
