//! An offset storage of one's own: a table with versions, as any database can keep it.
//!
//! `cargo run --example custom_offset_storage`

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use async_trait::async_trait;
use blobfeed::model::FeedPartitionKey;
use blobfeed::offset::{Error, MAX_OFFSET_BYTES, OffsetStorage, PersistOffset};

/// A row: a version that no other state of the row has had, and the offset.
type Row = (u64, String);

/// The table that all processes share.
#[derive(Default)]
pub(crate) struct Table {
    rows: BTreeMap<FeedPartitionKey, Row>,
    writes: u64,
}

/// The storage as one process has it.
#[derive(Default)]
pub(crate) struct TableOffsets {
    table: Arc<Mutex<Table>>,
    // What this process has read or written last: it overwrites nothing else.
    seen: Mutex<HashMap<FeedPartitionKey, Option<Row>>>,
}

impl TableOffsets {
    /// A process that works on `table`.
    pub(crate) fn new(table: Arc<Mutex<Table>>) -> TableOffsets {
        TableOffsets { table, seen: Mutex::default() }
    }

    // In a database: UPDATE ... WHERE key = ? AND version = ?, or an INSERT where there was no row.
    fn persist(&self, PersistOffset { key, offset }: &PersistOffset) -> Result<(), Error> {
        if offset.len() > MAX_OFFSET_BYTES {
            return Err(Error::Configuration { reason: format!("the offset of {key} is too long") });
        }
        let (mut table, mut seen) = (lock(&self.table), lock(&self.seen));
        let now = table.rows.get(key).cloned();
        if seen.get(key).is_some_and(|seen| *seen != now) {
            let stored = now.map(|(_, offset)| offset);
            return Err(Error::Conflict { key: key.clone(), stored, ours: offset.clone() });
        }
        table.writes += 1;
        let row = (table.writes, offset.clone());
        table.rows.insert(key.clone(), row.clone());
        seen.insert(key.clone(), Some(row));
        Ok(())
    }
}

#[async_trait]
impl OffsetStorage for TableOffsets {
    async fn persist_offsets(&self, batch: &[PersistOffset]) -> Vec<Result<(), Error>> {
        batch.iter().map(|entry| self.persist(entry)).collect()
    }

    async fn find_latest_persisted_offset(&self, key: &FeedPartitionKey) -> Result<Option<String>, Error> {
        let (table, mut seen) = (lock(&self.table), lock(&self.seen));
        let row = table.rows.get(key).cloned();
        seen.insert(key.clone(), row.clone());
        Ok(row.map(|(_, offset)| offset))
    }

    fn current_offset(&self, key: &FeedPartitionKey) -> Option<String> {
        lock(&self.seen).get(key)?.as_ref().map(|(_, offset)| offset.clone())
    }

    async fn list(&self, plan: &str) -> Result<Vec<PersistOffset>, Error> {
        let entry = |(key, (_, offset)): (&FeedPartitionKey, &Row)| PersistOffset {
            key: key.clone(),
            offset: offset.clone(),
        };
        Ok(lock(&self.table).rows.iter().filter(|(key, _)| &*key.plan == plan).map(entry).collect())
    }

    async fn delete(&self, key: &FeedPartitionKey) -> Result<(), Error> {
        let (mut table, mut seen) = (lock(&self.table), lock(&self.seen));
        table.rows.remove(key);
        seen.insert(key.clone(), None);
        Ok(())
    }
}

// Always the table first, so that two calls cannot wait for each other.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Two processes work on one partition: the second takes it over, the first learns of it.
pub(crate) async fn run() -> Result<Vec<String>, Error> {
    let table = Arc::new(Mutex::new(Table::default()));
    let (first, second) = (TableOffsets::new(table.clone()), TableOffsets::new(table));
    let key = FeedPartitionKey { plan: "plan".into(), feed: "feed".into(), id: "0".into() };
    let persist = async |storage: &TableOffsets, offset: &str| {
        let batch = [PersistOffset { key: key.clone(), offset: offset.to_owned() }];
        storage.persist_offsets(&batch).await.remove(0)
    };
    let mut story = Vec::new();
    persist(&first, "100").await?;
    story.push(format!("the second finds {:?}", second.find_latest_persisted_offset(&key).await?));
    persist(&second, "200").await?;
    match persist(&first, "150").await {
        Err(error @ Error::Conflict { .. }) => story.push(error.to_string()),
        other => story.push(format!("not noticed: {other:?}")),
    }
    story.push(format!("stored is {:?}", first.find_latest_persisted_offset(&key).await?));
    Ok(story)
}

#[allow(dead_code, reason = "the tests include this file and call `run`")]
#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Error> {
    for line in run().await? {
        println!("{line}");
    }
    // The suite that our own storages pass; it panics with the promises that are broken.
    let table = Arc::new(Mutex::new(Table::default()));
    blobfeed::offset::contract::run(|| Arc::new(TableOffsets::new(table.clone())), "plan").await;
    println!("it keeps the contract of offset storages");
    Ok(())
}
