//! What a feed's records become: names, formats, metadata of its blobs.

use std::sync::Arc;

use rand::Rng;

use super::Shared;
use crate::feed::partition_id;
use crate::format::avro::{AvroSchema, ContainerEncoder, sync_marker};
use crate::layout::{BlobTime, Layout, NameParts, Samza};
use crate::model::{BlobHeaders, FeedPartitionKey, Metadata, Offset, Ssp, TopicPartition};
use crate::plan::{self, Output};
use crate::producer::{BlobDescription, BlobLimits, BlobWriter, Destination, Error, Naming};
use crate::telemetry::FeedMetrics;

/// A feed of the plan, ready to be written.
pub(super) struct FeedTarget {
    pub(super) feed: plan::Feed,
    pub(super) metrics: FeedMetrics,
    plan: Arc<str>,
    limits: BlobLimits,
}

impl FeedTarget {
    pub(super) fn new(plan: &plan::Plan, feed: &plan::Feed, metrics: FeedMetrics) -> FeedTarget {
        let flush = &feed.flush;
        let limits = BlobLimits {
            block_bytes: usize::try_from(flush.max_block_size).unwrap_or(usize::MAX),
            blob_bytes: flush.max_blob_size,
            records: flush.max_records_per_blob.unwrap_or(u64::MAX),
            blocks: flush.max_blocks_per_blob,
        };
        FeedTarget { feed: feed.clone(), metrics, plan: plan.name.clone(), limits }
    }

    /// Under which key the offset of `partition` is persisted.
    pub(super) fn key(&self, partition: &TopicPartition) -> FeedPartitionKey {
        let id = partition_id(self.feed.topics.len() == 1, partition);
        FeedPartitionKey { plan: self.plan.clone(), feed: self.feed.name.clone(), id }
    }

    /// Where the records of `partition` go.
    pub(super) fn ssp(&self, partition: &TopicPartition) -> Ssp {
        let target = &self.feed.target;
        Ssp {
            container: target.container.clone(),
            stream: target.stream.render(&partition.topic, partition.partition).into(),
            partition: target.partition.render(&partition.topic, partition.partition).into(),
        }
    }

    /// A blob for records of `schema`, the first of which is at `first`.
    pub(super) fn open(
        &self,
        shared: &Shared,
        partition: &TopicPartition,
        ssp: &Ssp,
        schema: &Arc<AvroSchema>,
        first: Offset,
    ) -> Result<BlobWriter, Error> {
        let Output::Avro(codec) = self.feed.format.output;
        let destination = Destination::new(ssp.container.clone(), self.naming(ssp)?, shared.claims.clone());
        // A blob that is made again from the same first record gets the same bytes.
        let sync = sync_marker(&partition.topic, partition.partition, first);
        let encoder = ContainerEncoder::new(schema.clone(), codec, sync, &shared.budget);
        let mut metadata = Metadata::new();
        let mut set = |name: &str, value: String| metadata.insert(name.to_owned(), value);
        set("plan", self.plan.to_string());
        set("feed", self.feed.name.to_string());
        set("topic", partition.topic.to_string());
        set("partition", partition.partition.to_string());
        set("schema_id", schema.id.to_string());
        let headers = BlobHeaders { content_type: "application/avro".to_owned(), content_encoding: None };
        let description = BlobDescription {
            destination,
            encoder: Box::new(encoder),
            headers,
            metadata,
            limits: self.limits,
        };
        Ok(BlobWriter::new(&shared.stager, &self.metrics, description))
    }

    fn naming(&self, ssp: &Ssp) -> Result<Naming, Error> {
        const EXTENSION: &str = ".avro";
        let time = BlobTime::now();
        if self.feed.target.suffix {
            let suffix = Some(rand::rng().random());
            return Ok(Naming::Fixed(Samza.name(&NameParts { ssp, time, suffix, extension: EXTENSION })?));
        }
        let ssp = ssp.clone();
        Ok(Naming::NextFree(Box::new(move |n| {
            let time = time.plus_seconds(n);
            Samza.name(&NameParts { ssp: &ssp, time, suffix: None, extension: EXTENSION })
        })))
    }
}
