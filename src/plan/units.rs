//! Sizes and durations as a plan writes them.
//!
//! Owns: their notation, both ways.
//! Does not own: which values are sensible.

use std::time::Duration;

const SIZES: [(&str, u64); 11] = [
    ("tib", 1 << 40),
    ("gib", 1 << 30),
    ("mib", 1 << 20),
    ("kib", 1 << 10),
    ("tb", 1_000_000_000_000),
    ("gb", 1_000_000_000),
    ("mb", 1_000_000),
    ("kb", 1_000),
    ("bytes", 1),
    ("byte", 1),
    ("b", 1),
];

const DURATIONS: [(&str, u64); 5] =
    [("ms", 1), ("s", 1_000), ("m", 60_000), ("h", 3_600_000), ("d", 86_400_000)];

/// A size such as `8MiB`, `64 KiB`, `1GB` (a thousand million), or `4096` (bytes).
///
/// `None` for everything else, a bare `M` among it: it is 1,000,000 to some and 1,048,576 to others.
pub(super) fn parse_size(text: &str) -> Option<u64> {
    let (number, unit) = split(text)?;
    if unit.is_empty() {
        return Some(number);
    }
    let unit = unit.to_ascii_lowercase();
    let (_, factor) = SIZES.iter().find(|(name, _)| *name == unit)?;
    number.checked_mul(*factor)
}

/// A duration such as `500ms`, `60s`, `5m`, `1h`, `1d`. `None` for everything else, a bare number among it.
pub(super) fn parse_duration(text: &str) -> Option<Duration> {
    let (number, unit) = split(text)?;
    let (_, factor) = DURATIONS.iter().find(|(name, _)| *name == unit)?;
    number.checked_mul(*factor).map(Duration::from_millis)
}

fn split(text: &str) -> Option<(u64, &str)> {
    let text = text.trim();
    let end = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (number, unit) = text.split_at(end);
    // No digits is no number; u64's own parser would take a sign.
    Some((number.parse().ok()?, unit.trim_start()))
}

/// `bytes` in the largest unit that says it exactly.
pub(super) fn show_size(bytes: u64) -> String {
    for (unit, factor) in [("TiB", 1_u64 << 40), ("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)] {
        if bytes > 0 && bytes.is_multiple_of(factor) {
            return format!("{}{unit}", bytes / factor);
        }
    }
    format!("{bytes}B")
}

/// `duration` in the largest unit that says it exactly, to the millisecond.
pub(super) fn show_duration(duration: Duration) -> String {
    let millis = u64::try_from(duration.as_millis()).unwrap_or(u64::MAX);
    for (unit, factor) in DURATIONS.iter().rev() {
        if millis > 0 && millis.is_multiple_of(*factor) {
            return format!("{}{unit}", millis / factor);
        }
    }
    format!("{millis}ms")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes() {
        let check = |text: &str, expected: Option<u64>| assert_eq!(parse_size(text), expected, "{text:?}");
        check("8MiB", Some(8 << 20));
        check("64 KiB", Some(64 << 10));
        check("1GB", Some(1_000_000_000));
        check("1gib", Some(1 << 30));
        check(" 4096 ", Some(4096));
        check("0", Some(0));
        check("7 bytes", Some(7));
        for text in ["", "MiB", "-1", "+1", "1.5MiB", "1M", "1 000", "1_000", "0x10", "nan", "٣MiB", "1MiBs"]
        {
            check(text, None);
        }
        check("18446744073709551616", None);
        check("16777217TiB", None);
    }

    #[test]
    fn durations() {
        let check = |text: &str, millis: Option<u64>| {
            assert_eq!(parse_duration(text), millis.map(Duration::from_millis), "{text:?}");
        };
        check("500ms", Some(500));
        check("60s", Some(60_000));
        check("5 m", Some(300_000));
        check("1h", Some(3_600_000));
        check("1d", Some(86_400_000));
        for text in ["", "60", "s", "-1s", "1.5s", "1M", "1S", "1h30m", "1w", "inf", "18446744073709551615d"]
        {
            check(text, None);
        }
    }

    #[test]
    fn what_is_shown_is_read_back() {
        for bytes in [0, 1, 1023, 1024, 1536, 8 << 20, 1 << 30, 3 << 40] {
            assert_eq!(parse_size(&show_size(bytes)), Some(bytes));
        }
        for millis in [0, 1, 500, 60_000, 90_000, 3_600_000, 86_400_000] {
            let duration = Duration::from_millis(millis);
            assert_eq!(parse_duration(&show_duration(duration)), Some(duration));
        }
        assert_eq!(show_size(8 << 20), "8MiB");
        assert_eq!(show_duration(Duration::from_secs(60)), "1m");
    }
}
