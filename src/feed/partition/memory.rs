//! A feed of records that are at hand.

use async_trait::async_trait;

use super::{Error, Feed, FeedPartition};
use crate::model::{Offset, Record};

/// Partitions of given records, numbered from 0. They end.
#[derive(Debug, Clone, Default)]
pub struct MemoryFeed {
    partitions: Vec<Vec<Record>>,
}

impl MemoryFeed {
    /// The records of each partition, whose offsets must ascend; they need not be without holes.
    ///
    /// # Panics
    /// When they do not.
    pub fn new(partitions: Vec<Vec<Record>>) -> MemoryFeed {
        for records in &partitions {
            assert!(records.is_sorted_by(|a, b| a.offset < b.offset), "offsets ascend in a partition");
        }
        MemoryFeed { partitions }
    }
}

#[async_trait]
impl Feed for MemoryFeed {
    async fn partitions(&self) -> Result<Vec<Box<dyn FeedPartition>>, Error> {
        let partitions = self.partitions.iter().enumerate().map(|(number, records)| {
            let partition =
                MemoryPartition { id: number.to_string(), records: records.clone(), next: Offset::ZERO };
            Box::new(partition) as Box<dyn FeedPartition>
        });
        Ok(partitions.collect())
    }
}

struct MemoryPartition {
    id: String,
    records: Vec<Record>,
    next: Offset,
}

#[async_trait]
impl FeedPartition for MemoryPartition {
    fn id(&self) -> &str {
        &self.id
    }

    async fn next(&mut self) -> Result<Option<Record>, Error> {
        let at = self.records.partition_point(|record| record.offset < self.next);
        let record = self.records.get(at).cloned();
        if let Some(record) = &record {
            self.next = record.offset.following();
        }
        Ok(record)
    }

    fn supports_offset_management(&self) -> bool {
        true
    }

    fn offset(&self) -> Option<String> {
        Some(self.next.to_string())
    }

    async fn set_offset(&mut self, offset: &str) -> Result<(), Error> {
        let bad = |source| Error::BadOffset { partition: self.id.clone(), source };
        self.next = offset.parse().map_err(bad)?;
        Ok(())
    }
}
