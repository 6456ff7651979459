//! blobfeed copies Kafka topics into Azure Blob Storage.
//!
//! The binary `blobfeed` is a thin command line over this library. The map of its modules and the rules that they keep
//! are in `ARCHITECTURE.md`.

pub mod budget;
pub mod error;
pub mod format;
pub mod model;
pub mod offset;
pub mod plan;
pub mod registry;
pub mod retry;
pub mod store;
