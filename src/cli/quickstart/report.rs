//! What came of a quickstart: every blob read back and every record counted.

use std::fs::File;
use std::io::BufReader;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, bail};
use apache_avro::types::Value;

use super::PARTITIONS;

/// What is in the blobs.
pub(super) struct Found {
    blobs: Vec<u64>,
    records: Vec<u64>,
    bytes: u64,
    missing: u64,
    doubled: u64,
    /// One of the blobs.
    pub(super) example: PathBuf,
}

impl Found {
    /// Whether each of `total` records is there at least once.
    pub(super) fn is_complete(&self, total: u64) -> bool {
        self.missing == 0 && self.records.iter().sum::<u64>() == total + self.doubled
    }
}

/// Reads every blob of `container` with an Avro library that has no part in writing them.
pub(super) fn read_back(container: &Path, total: u64) -> anyhow::Result<Found> {
    let mut seen = vec![0_u8; usize::try_from(total)?];
    let mut found = Found {
        blobs: vec![0; PARTITIONS as usize],
        records: vec![0; PARTITIONS as usize],
        bytes: 0,
        missing: 0,
        doubled: 0,
        example: container.to_owned(),
    };
    let mut files = Vec::new();
    blobs_below(container, &mut files)?;
    files.sort();
    for file in files {
        let reader = BufReader::new(File::open(&file)?);
        let unreadable = || format!("blob {} cannot be read", file.display());
        found.bytes += std::fs::metadata(&file)?.len();
        let mut partition = None;
        for value in apache_avro::Reader::new(reader).with_context(unreadable)? {
            let sequence = sequence_of(&value.with_context(unreadable)?).with_context(unreadable)?;
            let times = seen.get_mut(usize::try_from(sequence)?).with_context(unreadable)?;
            *times = times.saturating_add(1);
            let at = (sequence % PARTITIONS as u64) as usize;
            if *partition.get_or_insert(at) != at {
                bail!("blob {} holds records of two partitions", file.display());
            }
            found.records[at] += 1;
        }
        let at = partition.with_context(|| format!("blob {} is empty", file.display()))?;
        found.blobs[at] += 1;
        found.example = file;
    }
    found.missing = seen.iter().filter(|times| **times == 0).count() as u64;
    found.doubled = seen.iter().map(|times| u64::from(times.saturating_sub(1))).sum();
    Ok(found)
}

fn blobs_below(folder: &Path, files: &mut Vec<PathBuf>) -> anyhow::Result<()> {
    for entry in std::fs::read_dir(folder).with_context(|| format!("no blobs in {}", folder.display()))? {
        let path = entry?.path();
        // What the store keeps for itself is hidden.
        if path.file_name().is_some_and(|name| name.to_string_lossy().starts_with('.')) {
            continue;
        }
        if path.is_dir() {
            blobs_below(&path, files)?;
        } else {
            files.push(path);
        }
    }
    Ok(())
}

fn sequence_of(value: &Value) -> anyhow::Result<u64> {
    match value {
        Value::Record(fields) => match fields.first() {
            Some((_, Value::Long(sequence))) => Ok(u64::try_from(*sequence)?),
            _ => bail!("the first field is no sequence number"),
        },
        _ => bail!("no record"),
    }
}

/// Prints the result for people.
pub(super) fn print(found: &Found, positions: &[u64], total: u64, took: Duration, killed_at: Option<u64>) {
    println!("\npartition   blobs   records   persisted offset");
    for (partition, offset) in positions.iter().enumerate() {
        let (blobs, records) = (found.blobs[partition], found.records[partition]);
        println!("{partition:>9} {blobs:>7} {records:>9} {offset:>18}");
    }
    let (blobs, records) = (found.blobs.iter().sum::<u64>(), found.records.iter().sum::<u64>());
    println!("    total {blobs:>7} {records:>9} {:>18}", positions.iter().sum::<u64>());
    let seconds = took.as_secs_f64();
    println!(
        "\n{total} records made, {records} found in {blobs} blobs ({} KiB), all read back: {} missing, {} written twice",
        found.bytes / 1024,
        found.missing,
        found.doubled,
    );
    println!(
        "{seconds:.1} s in all, {:.0} records/s, start-up, restart and waits of the group included",
        total as f64 / seconds.max(0.001),
    );
    match killed_at {
        Some(_) if found.doubled == 0 => {
            println!(
                "the kill cost nothing: what was in open blobs has been read again, and no blob was committed without its offset",
            );
        }
        Some(_) => println!(
            "the kill cost {} records written twice: their blobs were committed, their offset was not persisted yet \
             (at_least_once)",
            found.doubled,
        ),
        None => {}
    }
}
