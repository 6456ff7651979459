//! blobfeed copies Kafka topics into Azure Blob Storage.
//!
//! The binary `blobfeed` is a thin command line over this library. The map of its modules and the rules that they keep
//! are in `ARCHITECTURE.md`.

pub mod audit;
pub mod budget;
pub mod cli;
pub mod commit;
pub mod error;
pub mod feed;
pub mod format;
pub mod http;
pub mod kafka;
pub mod layout;
pub mod model;
pub mod offset;
pub mod plan;
pub mod producer;
pub mod registry;
pub mod retry;
pub mod runtime;
pub mod store;
pub mod telemetry;
