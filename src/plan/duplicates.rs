//! Keys that a JSON text has twice.
//!
//! Owns: finding the first one.
//! Does not own: faults of syntax; text that is no JSON has no duplicates here.

use std::collections::BTreeSet;
use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, Error as _, IgnoredAny, MapAccess, SeqAccess, Visitor};

use super::tree::join;

/// The path of the first key in `json` that its table has already.
pub(super) fn find(json: &str) -> Option<String> {
    let mut found = None;
    let walk = Walk { path: String::new(), found: &mut found };
    // Whatever else is wrong is the real parser's to say.
    let _ = walk.deserialize(&mut serde_json::Deserializer::from_str(json));
    found
}

struct Walk<'a> {
    path: String,
    found: &'a mut Option<String>,
}

impl<'de> DeserializeSeed<'de> for Walk<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Walk<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("any value")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        let mut seen = BTreeSet::new();
        while let Some(key) = map.next_key::<String>()? {
            let path = join(&self.path, &key);
            if !seen.insert(key) {
                *self.found = Some(path);
                return Err(A::Error::custom("found"));
            }
            map.next_value_seed(Walk { path, found: self.found })?;
        }
        Ok(())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<(), A::Error> {
        while seq.next_element::<IgnoredAny>()?.is_some() {}
        Ok(())
    }

    fn visit_bool<E>(self, _: bool) -> Result<(), E> {
        Ok(())
    }

    fn visit_i64<E>(self, _: i64) -> Result<(), E> {
        Ok(())
    }

    fn visit_u64<E>(self, _: u64) -> Result<(), E> {
        Ok(())
    }

    fn visit_f64<E>(self, _: f64) -> Result<(), E> {
        Ok(())
    }

    fn visit_str<E>(self, _: &str) -> Result<(), E> {
        Ok(())
    }

    fn visit_unit<E>(self) -> Result<(), E> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_key_that_is_there_twice_is_found() {
        let check =
            |json: &str, expected: Option<&str>| assert_eq!(find(json).as_deref(), expected, "{json}");
        check(r#"{"a": 1, "b": {"a": 2}, "c": [null, true, -1, 1.5, "x", {"a": 1}]}"#, None);
        check(r#"{"a": 1, "b": {"x.y": 2, "x.y": 3}}"#, Some("b.\"x.y\""));
        check(r#"{"a": {"c": [], "d": 0}, "a": 2}"#, Some("a"));
        check(r#"{"a": "#, None);
        check("", None);
    }
}
