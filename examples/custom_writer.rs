//! A format of one's own: JSON lines with key and headers, sent through the blob producer into a directory.
//!
//! `cargo run --example custom_writer`

use std::path::Path;
use std::sync::Arc;

use blobfeed::budget::Tail;
use blobfeed::commit::{BlobProducer, Flushed, ProducerOptions};
use blobfeed::feed::{Feed as _, MemoryFeed};
use blobfeed::format::{BadRecord, Encoder, Facts, Reason};
use blobfeed::layout::{BlobTime, Layout as _, NameParts, Samza};
use blobfeed::model::{BlobHeaders, Metadata, Offset, Record, RecordRef, Ssp, Timestamp, TimestampKind};
use blobfeed::producer::{
    BlobDescription, BlobLimits, Envelope, Error, Naming, NewBlob, OutputKey, WriterFactory,
};
use blobfeed::store::{BlobStore, DirectoryStore};
use serde_json::{Map, Value, json};

/// Writes each record as one line. It holds nothing back, so every line is in the blob's tail at once.
#[derive(Default)]
struct JsonLines {
    facts: Facts,
}

impl Encoder for JsonLines {
    fn append(&mut self, record: &RecordRef<'_>, out: &mut Tail) -> Result<(), BadRecord> {
        let value = record.value.ok_or(BadRecord::new(Reason::NullValue, 0))?;
        let mut headers = Map::new();
        let list = (0..).map_while(|index| record.headers?.header(index));
        for (name, value) in list {
            headers.insert(name.to_owned(), value.map(text).transpose()?.into());
        }
        let line = json!({
            "offset": record.offset.get(),
            "timestamp": record.timestamp.map(|timestamp| timestamp.millis),
            "key": record.key.map(text).transpose()?,
            "headers": headers,
            "value": text(value)?,
        });
        out.push_slice(format!("{line}\n").as_bytes());
        self.facts.records += 1;
        self.facts.raw_bytes += value.len() as u64;
        Ok(())
    }

    fn flush(&mut self, _: &mut Tail) {}

    fn buffered(&self) -> usize {
        0
    }

    fn facts(&self) -> Facts {
        self.facts
    }
}

fn text(bytes: &[u8]) -> Result<Value, BadRecord> {
    let text = std::str::from_utf8(bytes);
    text.map(Value::from).map_err(|error| BadRecord::new(Reason::NotUtf8, error.valid_up_to()))
}

/// Records of tenants go to blobs of their own: the key's first byte decides.
struct ByTenant;

impl WriterFactory for ByTenant {
    fn output_key(&self, _: &Ssp, record: &RecordRef<'_>) -> Result<OutputKey, BadRecord> {
        match record.key.and_then(<[u8]>::first) {
            Some(tenant) => Ok(OutputKey(u32::from(*tenant))),
            None => Err(BadRecord::new(Reason::Other(&"a record without a tenant in its key"), 0)),
        }
    }

    fn describe(&self, blob: &NewBlob<'_>) -> Result<BlobDescription, Error> {
        let parts = NameParts {
            ssp: blob.ssp,
            time: BlobTime::now(),
            suffix: Some(rand::random()),
            extension: ".jsonl",
        };
        Ok(BlobDescription {
            destination: blob.destination(Naming::Fixed(Samza.name(&parts)?)),
            encoder: Box::new(JsonLines::default()),
            headers: BlobHeaders { content_type: "application/x-ndjson".to_owned(), content_encoding: None },
            metadata: Metadata::from([("source".to_owned(), blob.source.to_owned())]),
            limits: BlobLimits {
                block_bytes: 4 << 20,
                blob_bytes: 256 << 20,
                records: u64::MAX,
                blocks: 50_000,
            },
        })
    }
}

fn orders() -> MemoryFeed {
    let order = |offset: u32| Record {
        offset: Offset::new(i64::from(offset)).expect("not negative"),
        timestamp: Some(Timestamp {
            millis: 1_800_000_000_000 + i64::from(offset),
            kind: TimestampKind::Create,
        }),
        key: Some(format!("{}-{offset}", if offset.is_multiple_of(2) { "a" } else { "b" }).into()),
        value: Some(format!("order {offset}").into()),
        headers: vec![("trace".to_owned(), Some(format!("{offset:04x}").into_bytes()))],
    };
    MemoryFeed::new(vec![(0..100).map(order).collect()])
}

/// Copies a feed into `folder`; gives what was committed and the offset to go on from.
pub(crate) async fn run(folder: &Path) -> anyhow::Result<(Flushed, String)> {
    let store = Arc::new(DirectoryStore::open(folder)?);
    store.ensure_container("orders", true).await?;
    let producer = BlobProducer::new(store, Arc::new(ByTenant), ProducerOptions::default());
    let mut partitions = orders().partitions().await?;
    let partition = partitions[0].as_mut();
    producer.register("shop-0")?;
    while let Some(record) = partition.next().await? {
        let ssp = Ssp { container: "orders".into(), stream: "shop".into(), partition: partition.id().into() };
        producer.send("shop-0", &Envelope { ssp, record }).await?;
    }
    // First the blobs, then the offset: a crash in between writes records twice, and never loses one.
    let flushed = producer.flush("shop-0").await?;
    let offset = partition.offset().expect("this feed has offsets");
    producer.stop().await?;
    Ok((flushed, offset))
}

#[allow(dead_code, reason = "the tests include this file and call `run`")]
#[tokio::main(flavor = "current_thread")]
async fn main() -> anyhow::Result<()> {
    let folder = tempfile::tempdir()?;
    let (flushed, offset) = run(folder.path()).await?;
    for blob in &flushed.blobs {
        println!("{}: {} records, {} bytes", blob.blob, blob.records, blob.bytes);
    }
    println!("to go on from: {offset}");
    Ok(())
}
