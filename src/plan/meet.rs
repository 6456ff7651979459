//! Whether two places could give blobs the same names.
//!
//! Owns: prefixes of names as patterns, and whether two patterns have a text in common.
//! Does not own: what follows from it.

use std::collections::HashSet;

use super::types::Target;

/// All prefixes that one topic's partitions give to names of blobs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Prefixes(Vec<Part>);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Part {
    Char(char),
    Digit,
    MoreDigits,
}

impl Prefixes {
    pub(super) fn of(target: &Target, topic: &str) -> Prefixes {
        let mut template = target.stream.as_str().to_owned();
        if !target.partition.as_str().is_empty() {
            template.push('/');
            template.push_str(target.partition.as_str());
        }
        let mut parts = Vec::new();
        for (i, piece) in template.split("{partition}").enumerate() {
            if i > 0 {
                parts.extend([Part::Digit, Part::MoreDigits]);
            }
            parts.extend(piece.replace("{topic}", topic).chars().map(Part::Char));
        }
        Prefixes(parts)
    }

    /// Whether each partition has a prefix of its own.
    pub(super) fn tell_partitions(&self) -> bool {
        self.0.contains(&Part::Digit)
    }

    /// Whether some prefix may be one of `other` too.
    ///
    /// A number that occurs twice is taken for two numbers, so a few pairs that cannot meet are said to. Names that
    /// follow prefixes have one depth and end in a time, so they meet exactly where prefixes are equal.
    pub(super) fn meet(&self, other: &Prefixes) -> bool {
        let (a, b) = (&self.0, &other.0);
        let mut seen = HashSet::new();
        let mut open = vec![(0, 0)];
        while let Some((i, j)) = open.pop() {
            if !seen.insert((i, j)) {
                continue;
            }
            let (left, right) = (a.get(i).copied(), b.get(j).copied());
            if left.is_none() && right.is_none() {
                return true;
            }
            if left == Some(Part::MoreDigits) {
                open.push((i + 1, j));
            }
            if right == Some(Part::MoreDigits) {
                open.push((i, j + 1));
            }
            if let (Some(left), Some(right)) = (left, right)
                && left.shares_a_char_with(right)
            {
                open.push((i + left.step(), j + right.step()));
            }
        }
        false
    }
}

impl Part {
    fn shares_a_char_with(self, other: Part) -> bool {
        match (self, other) {
            (Part::Char(a), Part::Char(b)) => a == b,
            (Part::Char(c), _) | (_, Part::Char(c)) => c.is_ascii_digit(),
            _ => true,
        }
    }

    fn step(self) -> usize {
        usize::from(self != Part::MoreDigits)
    }
}

#[cfg(test)]
mod tests {
    use super::super::types::Template;
    use super::*;

    fn prefixes(stream: &str, partition: &str, topic: &str) -> Prefixes {
        let target = Target {
            container: "c".into(),
            stream: Template::new(stream),
            partition: Template::new(partition),
            suffix: false,
        };
        Prefixes::of(&target, topic)
    }

    #[test]
    fn prefixes_meet_where_a_text_fits_both() {
        let check = |a: (&str, &str, &str), b: (&str, &str, &str), expected: bool| {
            let (left, right) = (prefixes(a.0, a.1, a.2), prefixes(b.0, b.1, b.2));
            assert_eq!(left.meet(&right), expected, "{a:?} {b:?}");
            assert_eq!(right.meet(&left), expected, "{b:?} {a:?}");
        };
        let p = "partition-{partition}";
        check(("s", p, "a"), ("s", p, "b"), true);
        check(("s", p, "a"), ("t", p, "b"), false);
        check(("{topic}", p, "a"), ("{topic}", p, "b"), false);
        check(("s/{topic}", p, "a"), ("s/a", p, "b"), true);
        check(("s", p, "a"), ("s", "", "b"), false);
        check(("s", "{partition}", "a"), ("s/7", "", "b"), true);
        check(("s", "{partition}", "a"), ("s/x", "", "b"), false);
        check(("s", "1{partition}", "a"), ("s", "2{partition}", "b"), false);
        check(("s", "1{partition}", "a"), ("s", "{partition}", "b"), true);
        check(("s", "x{partition}", "a"), ("s", "x{partition}0", "b"), true);
        check(("s{partition}", "", "a"), ("s", "{partition}", "b"), false);
        // Topics that look like placeholders are none.
        check(("{topic}", "", "1"), ("{topic}", "", "2"), false);
    }

    #[test]
    fn a_prefix_without_the_partition_is_shared() {
        assert!(prefixes("s", "p{partition}", "t").tell_partitions());
        assert!(!prefixes("s", "{topic}", "t").tell_partitions());
    }
}
