//! Avro: schemas, the check of datums, object containers.
//!
//! Owns: pass-through of datums into containers under the registry's unchanged schema text, and reading containers
//! for inspection.
//! Does not own: decoding into values; nothing here needs them.

mod codec;
mod compile;
mod container;
mod inline;
#[cfg(test)]
mod oracle;
pub mod read;
mod scalar;
mod schema;
mod walk;
mod wire;

pub use container::{AvroSchema, ContainerEncoder, sync_marker};
pub use inline::inline;
pub use schema::{MAX_EXPANDED, MAX_NODES, MAX_TEXT, SchemaError};
pub use walk::Program;
