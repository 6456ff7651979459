//! Looks at what was written.
//!
//! Owns: the inspection of single blobs.
//! Does not own: reading them from where they are; changing anything.

mod inspect;
mod source;

pub use inspect::{InspectError, Inspection, inspect};
pub use source::{BlobFile, BlobSource, FileError};
