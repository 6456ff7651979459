//! Schemas by id from a schema registry with Confluent's API.
//!
//! Owns: one fetch per id and process, its cache, limits on what a registry may send.
//! Does not own: what a schema means (see [`crate::format`]), retries of an unavailable registry.
