//! Where records come from and where they go.

use std::fmt;
use std::sync::Arc;

/// A partition of a Kafka topic.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TopicPartition {
    /// The topic's name.
    pub topic: Arc<str>,
    /// The partition's number.
    pub partition: i32,
}

impl fmt::Display for TopicPartition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}[{}]", self.topic, self.partition)
    }
}

/// A SystemStreamPartition: the place that records are sent to.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Ssp {
    /// The system: an Azure container.
    pub container: Arc<str>,
    /// The stream: a blob prefix.
    pub stream: Arc<str>,
    /// The partition, a path segment below the stream; empty leaves it out of names.
    pub partition: Arc<str>,
}

impl fmt::Display for Ssp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.container, self.stream)?;
        if self.partition.is_empty() { Ok(()) } else { write!(f, "/{}", self.partition) }
    }
}

/// The identity under which a feed partition's offset is persisted.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FeedPartitionKey {
    /// The plan's name.
    pub plan: Arc<str>,
    /// The feed's name in the plan.
    pub feed: Arc<str>,
    /// `<n>` for a feed of one named topic, `<topic>.<n>` for several topics or a pattern.
    pub id: Arc<str>,
}

impl FeedPartitionKey {
    /// The source name of this partition towards the blob producer: `<plan>-<feed>-<partition id>`.
    pub fn source(&self) -> String {
        self.to_string()
    }
}

impl fmt::Display for FeedPartitionKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}-{}", self.plan, self.feed, self.id)
    }
}
