//! stub
#![allow(missing_docs)]
use crate::model::*;
#[derive(Clone, Copy)] pub struct BlobTime(i64); impl BlobTime { pub fn now() -> Self { BlobTime(0) } pub fn plus_seconds(self, n: u32) -> Self { BlobTime(self.0 + i64::from(n)) } }
pub struct NameParts<'a> { pub ssp: &'a Ssp, pub time: BlobTime, pub suffix: Option<u32>, pub extension: &'a str }
pub trait Layout { fn name(&self, p: &NameParts<'_>) -> Result<BlobName, BadBlobName>; }
pub struct Samza; impl Layout for Samza { fn name(&self, _p: &NameParts<'_>) -> Result<BlobName, BadBlobName> { BlobName::new("x") } }
