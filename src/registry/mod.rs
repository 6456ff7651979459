//! Schemas by id from a schema registry with Confluent's API.
//!
//! Owns: one fetch per id and process, its cache, limits on what a registry may send.
//! Does not own: what a schema means (see [`crate::format`]), retries of an unavailable registry.
#![allow(missing_docs)]
use std::sync::Arc; use crate::error::Class;
#[derive(Debug, thiserror::Error)] #[error("bad")] pub struct Error; impl Error { pub fn class(&self) -> Class { Class::Retry } }
impl crate::retry::Classify for Error { fn class(&self) -> Class { Class::Retry } }
#[derive(Debug, Clone, Copy, PartialEq, Eq)] pub enum SchemaKind { Avro, Json }
pub struct RegisteredSchema { pub kind: SchemaKind, pub text: Arc<str>, pub references: Vec<(String, String)> }
pub struct SchemaRegistry; impl SchemaRegistry { pub fn new(_p: &crate::plan::SchemaRegistry) -> Result<Self, Error> { Ok(SchemaRegistry) } pub async fn schema(&self, _id: u32) -> Result<Arc<RegisteredSchema>, Error> { Err(Error) } }
