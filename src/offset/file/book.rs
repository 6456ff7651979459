//! The format of the offset file.
//!
//! Owns: JSON of format 1, `{"format": 1, "offsets": {plan: {feed: {partition id: offset}}}}`, sorted at each level.
//! Does not own: the file.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::model::FeedPartitionKey;
use crate::offset::{PersistOffset, stored_offset};

const FORMAT: u64 = 1;

/// Everything in the file. Unknown keys are refused: writing the file again would lose them.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Book {
    format: u64,
    offsets: BTreeMap<String, Feeds>,
}

type Feeds = BTreeMap<String, BTreeMap<String, String>>;

impl Book {
    pub(super) fn new() -> Book {
        Book { format: FORMAT, offsets: BTreeMap::new() }
    }

    /// Reads a file's content, or says why it is none of ours.
    pub(super) fn parse(bytes: &[u8]) -> Result<Book, String> {
        #[derive(Deserialize)]
        struct Header {
            format: u64,
        }
        let unreadable = |error: serde_json::Error| format!("it is no offset file: {error}");
        // The version first: what else is in a file of another version, only that version knows.
        let Header { format } = serde_json::from_slice(bytes).map_err(unreadable)?;
        if format != FORMAT {
            return Err(format!("its format is {format}, and this program knows format {FORMAT} only"));
        }
        let book: Book = serde_json::from_slice(bytes).map_err(unreadable)?;
        for offset in book.offsets.values().flat_map(|feeds| feeds.values()).flat_map(|ids| ids.values()) {
            stored_offset(offset.as_bytes())?;
        }
        Ok(book)
    }

    /// The file's content, with a line per offset.
    pub(super) fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = serde_json::to_vec_pretty(self).expect("maps of strings are valid JSON");
        bytes.push(b'\n');
        bytes
    }

    pub(super) fn get(&self, key: &FeedPartitionKey) -> Option<&str> {
        let ids = self.offsets.get(&*key.plan)?.get(&*key.feed)?;
        ids.get(&*key.id).map(String::as_str)
    }

    pub(super) fn set(&mut self, key: &FeedPartitionKey, offset: &str) {
        let feeds = self.offsets.entry(key.plan.to_string()).or_default();
        let ids = feeds.entry(key.feed.to_string()).or_default();
        ids.insert(key.id.to_string(), offset.to_owned());
    }

    /// Whether there was an entry.
    pub(super) fn remove(&mut self, key: &FeedPartitionKey) -> bool {
        let Some(feeds) = self.offsets.get_mut(&*key.plan) else { return false };
        let Some(ids) = feeds.get_mut(&*key.feed) else { return false };
        let removed = ids.remove(&*key.id).is_some();
        // What is empty would stay in the file for ever.
        if ids.is_empty() {
            feeds.remove(&*key.feed);
        }
        if feeds.is_empty() {
            self.offsets.remove(&*key.plan);
        }
        removed
    }

    /// The entries of `plan`, sorted.
    pub(super) fn of_plan(&self, plan: &str) -> Vec<PersistOffset> {
        let mut entries = Vec::new();
        for (feed, ids) in self.offsets.get(plan).into_iter().flatten() {
            for (id, offset) in ids {
                let (plan, feed, id) = (plan.into(), feed.as_str().into(), id.as_str().into());
                entries
                    .push(PersistOffset { key: FeedPartitionKey { plan, feed, id }, offset: offset.clone() });
            }
        }
        entries
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(feed: &str, id: &str) -> FeedPartitionKey {
        FeedPartitionKey { plan: "wikipedia".into(), feed: feed.into(), id: id.into() }
    }

    #[test]
    fn a_person_can_read_it() {
        let mut book = Book::new();
        book.set(&key("edits", "1"), "12");
        book.set(&key("edits", "0"), "7");
        let text = r#"{
  "format": 1,
  "offsets": {
    "wikipedia": {
      "edits": {
        "0": "7",
        "1": "12"
      }
    }
  }
}
"#;
        assert_eq!(String::from_utf8(book.to_bytes()).unwrap(), text);
        assert_eq!(Book::parse(text.as_bytes()).unwrap(), book);
    }

    #[test]
    fn what_is_no_offset_file_is_refused() {
        let long = "9".repeat(1025);
        let cases = [
            ("", "no offset file"),
            ("[]", "no offset file"),
            ("{}", "no offset file"),
            (r#"{"format": 1, "offsets": {"p": {"f": {"0": 7}}}}"#, "no offset file"),
            (r#"{"format": 1, "offsets": {}, "more": 1}"#, "no offset file"),
            (r#"{"format": 1, "offsets": {}"#, "no offset file"),
            (r#"{"format": 2, "offsets": [], "more": 1}"#, "its format is 2"),
            (&format!(r#"{{"format": 1, "offsets": {{"p": {{"f": {{"0": "{long}"}}}}}}}}"#), "too many"),
        ];
        for (text, reason) in cases {
            let error = Book::parse(text.as_bytes()).unwrap_err();
            assert!(error.contains(reason), "{text}: {error}");
        }
    }

    #[test]
    fn removing_the_last_entry_leaves_nothing_behind() {
        let mut book = Book::new();
        book.set(&key("edits", "0"), "7");
        assert!(!book.remove(&key("edits", "1")));
        assert!(!book.remove(&key("views", "0")));
        assert!(book.remove(&key("edits", "0")));
        assert_eq!(book, Book::new());
    }
}
