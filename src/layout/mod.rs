//! Blob names.
//!
//! Owns: how a SystemStreamPartition and a time become a name.
//! Does not own: whether the name is free (see [`crate::producer`]).

use chrono::{DateTime, TimeDelta, Utc};

use crate::model::{BadBlobName, BlobName, Ssp};

/// A time in a name: UTC, by the second.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct BlobTime(DateTime<Utc>);

impl BlobTime {
    /// The time now.
    pub fn now() -> BlobTime {
        BlobTime(Utc::now())
    }

    /// So many seconds since 1970-01-01T00:00:00Z; `None` outside the calendar.
    pub fn from_unix_seconds(seconds: i64) -> Option<BlobTime> {
        DateTime::from_timestamp(seconds, 0).map(BlobTime)
    }

    /// `seconds` later.
    #[must_use]
    pub fn plus_seconds(self, seconds: u32) -> BlobTime {
        let later = self.0.checked_add_signed(TimeDelta::seconds(i64::from(seconds)));
        BlobTime(later.unwrap_or(self.0))
    }
}

/// What a name is made of.
#[derive(Debug, Clone, Copy)]
pub struct NameParts<'a> {
    /// Where the blob goes; the container is not part of the name.
    pub ssp: &'a Ssp,
    /// The layout's one time.
    pub time: BlobTime,
    /// Random bits that keep names of rivals apart.
    pub suffix: Option<u32>,
    /// With its dot, such as `.avro`.
    pub extension: &'a str,
}

/// Makes names. The same parts always make the same name.
pub trait Layout: Send + Sync {
    /// # Errors
    /// [`BadBlobName`] when stream or partition do not make one.
    fn name(&self, parts: &NameParts<'_>) -> Result<BlobName, BadBlobName>;
}

/// The parent's layout: `<stream>[/<partition>]/yyyy/MM/dd/HH/mm-ss[-suffix]<extension>`, the suffix in eight hex digits.
///
/// Source: Apache Samza, SEP-26, "Azure Blob Storage producer".
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Samza;

impl Layout for Samza {
    fn name(&self, parts: &NameParts<'_>) -> Result<BlobName, BadBlobName> {
        let NameParts { ssp, time, suffix, extension } = parts;
        let partition = if ssp.partition.is_empty() { String::new() } else { format!("{}/", ssp.partition) };
        let time = time.0.format("%Y/%m/%d/%H/%M-%S");
        let suffix = suffix.map_or_else(String::new, |bits| format!("-{bits:08x}"));
        BlobName::new(format!("{}/{partition}{time}{suffix}{extension}", ssp.stream))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // 2026-12-31T23:59:58Z
    const NEW_YEARS_EVE: i64 = 1_798_761_598;

    fn name(stream: &str, partition: &str, seconds: u32, suffix: Option<u32>) -> Result<String, BadBlobName> {
        let ssp = Ssp { container: "c".into(), stream: stream.into(), partition: partition.into() };
        let time = BlobTime::from_unix_seconds(NEW_YEARS_EVE).unwrap().plus_seconds(seconds);
        let parts = NameParts { ssp: &ssp, time, suffix, extension: ".avro" };
        Samza.name(&parts).map(|name| name.to_string())
    }

    #[test]
    fn names_are_the_parents() {
        let check = |got: Result<String, BadBlobName>, expected: &str| assert_eq!(got.unwrap(), expected);
        check(name("s", "partition-3", 0, None), "s/partition-3/2026/12/31/23/59-58.avro");
        check(name("s", "", 0, None), "s/2026/12/31/23/59-58.avro");
        check(name("a/b", "", 1, Some(0xbeef)), "a/b/2026/12/31/23/59-59-0000beef.avro");
        check(name("ä ü+=", "p", 2, Some(u32::MAX)), "ä ü+=/p/2027/01/01/00/00-00-ffffffff.avro");
    }

    #[test]
    fn a_stream_that_makes_no_name_is_refused() {
        for (stream, partition) in [("", ""), ("a//b", ""), ("a/", ""), ("/a", ""), ("a", ".."), ("a\\b", "")]
        {
            assert!(name(stream, partition, 0, None).is_err(), "{stream:?} {partition:?}");
        }
    }
}
