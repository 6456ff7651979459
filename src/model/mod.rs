//! The words of blobfeed as types: offsets, partitions, records, blobs.
//!
//! Owns: values that every other module passes around, and the two seams that cross ranks
//! ([`RecordSink`], [`GroupOffsets`]).
//! Does not own: I/O, time, configuration.

mod blob;
mod offset;
mod owned;
mod partition;
mod record;
mod secret;

pub use blob::{BadBlobName, BlobHeaders, BlobName, BlobRef, BlockContent, BlockId, Metadata, SealedBlob};
pub use offset::{BadOffset, Offset, OffsetRange};
pub use owned::Record;
pub use partition::{FeedPartitionKey, Ssp, TopicPartition};
pub use record::{Flow, GroupOffsets, HeaderList, RecordRef, RecordSink, Slot, Timestamp, TimestampKind};
pub use secret::{Secret, redact_url};
