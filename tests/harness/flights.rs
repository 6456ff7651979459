//! The flights that left New York in 2013, as Avro records.

use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::path::{Path, PathBuf};

use serde::Deserialize;
use tokio::sync::OnceCell;

use super::{Blob, avro, python};

/// Rows of the data set.
pub(crate) const COUNT: usize = 336_776;
/// Row i is sent to partition i modulo this.
pub(crate) const PARTITIONS: i32 = 6;

/// The rows as Avro data, in the order of the data set.
#[derive(Clone, Copy)]
pub(crate) struct Flights {
    data: &'static [u8],
}

impl Flights {
    /// The rows, with the partition that each goes to, framed with the id of their schema.
    pub(crate) fn framed(self, schema: u32) -> impl Iterator<Item = (i32, Vec<u8>)> + Send + 'static {
        let mut rest = self.data;
        let datums = std::iter::from_fn(move || {
            let (length, behind) = rest.split_first_chunk::<4>()?;
            let (datum, behind) = behind.split_at(u32::from_be_bytes(*length) as usize);
            rest = behind;
            Some(datum)
        });
        (0..PARTITIONS)
            .cycle()
            .zip(datums)
            .map(move |(partition, datum)| (partition, avro::framed(schema, datum)))
    }
}

/// All rows. They are made once and kept beside the build.
pub(crate) async fn load() -> Flights {
    static LOADED: OnceCell<Vec<u8>> = OnceCell::const_new();
    let data = LOADED
        .get_or_init(async || {
            let path = cache();
            if !path.exists() {
                let own = path.with_extension(format!("{:08x}", rand::random::<u32>()));
                python::tell("flights.py", &["-o".as_ref(), own.as_os_str()]).await;
                std::fs::rename(&own, &path).expect("a file can be renamed");
            }
            std::fs::read(&path).expect("the flights can be read")
        })
        .await;
    Flights { data }
}

// Named by what makes it, so that a change there is no surprise here.
fn cache() -> PathBuf {
    let mut hasher = DefaultHasher::new();
    for file in ["flights.py", "requirements.txt"] {
        let path = python::root().join("tests/support").join(file);
        std::fs::read(&path).expect("the helpers are there").hash(&mut hasher);
    }
    Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("flights-{:016x}", hasher.finish()))
}

/// The schema of a row, as it is registered.
pub(crate) async fn schema() -> String {
    python::tell("flights.py", &["--schema"]).await.trim().to_owned()
}

/// What `compare_flights.py` counted.
#[derive(Debug, Clone, Deserialize)]
pub(crate) struct Counts {
    pub(crate) ok: bool,
    pub(crate) blobs: usize,
    pub(crate) records: u64,
    pub(crate) missing: u64,
    pub(crate) doubled: u64,
    pub(crate) out_of_order: u64,
    pub(crate) wrong_partition: u64,
    pub(crate) unknown: u64,
    pub(crate) partitions: BTreeMap<String, PartitionCounts>,
}

#[derive(Debug, Clone, Deserialize)]
pub(crate) struct PartitionCounts {
    pub(crate) blobs: usize,
    pub(crate) records: u64,
}

/// Compares what fastavro reads from the files in `folder` with the first `rows` rows: all there, each once, in order.
///
/// # Panics
/// When something is wrong.
pub(crate) async fn demand_each_once(folder: &Path, rows: usize) -> Counts {
    compare(folder, rows, false).await
}

/// The same, but a row may be there more than once.
pub(crate) async fn demand_none_missing(folder: &Path, rows: usize) -> Counts {
    compare(folder, rows, true).await
}

async fn compare(folder: &Path, rows: usize, doubles: bool) -> Counts {
    let rows = rows.to_string();
    let mut arguments = vec!["--rows".as_ref(), rows.as_ref(), folder.as_os_str()];
    if doubles {
        arguments.insert(0, "--at-least-once".as_ref());
    }
    let answer = python::ask("compare_flights.py", &arguments).await;
    let counts: Counts = serde_json::from_str(&answer.text)
        .unwrap_or_else(|error| panic!("{error}: {} {}", answer.text, answer.complaints));
    assert!(counts.ok && answer.ok, "{counts:?}");
    counts
}

/// Gives each downloaded blob the place that `compare_flights.py` looks for, by the partition in its metadata. For
/// layouts that leave the partition out of the name.
pub(crate) fn sort_by_partition(blobs: &[Blob], folder: &Path) {
    for blob in blobs {
        let place = folder.join(format!("partition-{}", blob.meta("partition")));
        std::fs::create_dir_all(&place).expect("a folder can be made");
        let name = blob.name.replace('/', "_");
        std::fs::copy(&blob.path, place.join(name)).expect("a file can be copied");
    }
}
