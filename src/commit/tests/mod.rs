//! Commits against the store in memory.

mod blob;
mod partition;
mod persister;
mod producer;
mod sources;
