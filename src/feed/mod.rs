//! Feeds: topics under a name in a plan, read partition by partition.
//!
//! Owns: which slot a fetched message belongs to; handing records to a [`crate::model::RecordSink`] as they are
//! dequeued.
//! Does not own: positions and rebalances (see [`crate::runtime`]).

mod partition;
mod reader;

pub use partition::{Error, Feed, FeedPartition, KafkaFeed, MemoryFeed};
pub use reader::{LaneReader, Read};

use std::sync::Arc;

use crate::model::TopicPartition;

/// The partition id under which offsets of `at` are kept in `feed`: the number alone for a feed of one named topic.
pub fn partition_id(single_topic: bool, at: &TopicPartition) -> Arc<str> {
    if single_topic {
        at.partition.to_string().into()
    } else {
        format!("{}.{}", at.topic, at.partition).into()
    }
}
