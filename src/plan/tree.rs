//! The tree of plain values that a plan is before it is typed.
//!
//! Owns: nodes with their paths; how a value may be shown.
//! Does not own: where trees come from, what they mean.

use std::collections::BTreeMap;

use crate::model::redact_url;

/// A table of the tree.
pub(super) type Table = BTreeMap<String, Node>;

/// A value with its place.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Node {
    /// Where it stands, such as `feeds.edits.topics[0]`.
    pub(super) path: String,
    /// What stands there.
    pub(super) value: Value,
    /// Whether a secret was put into it, so that it must not be shown.
    pub(super) hidden: bool,
}

/// A plain value.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Value {
    /// A fault was reported for it already; readers pass it over.
    Broken,
    Null,
    Boolean(bool),
    Integer(i128),
    Float(f64),
    Text(String),
    List(Vec<Node>),
    Table(Table),
}

impl Node {
    pub(super) fn new(path: impl Into<String>, value: Value) -> Node {
        Node { path: path.into(), value, hidden: false }
    }

    /// The kind of value, which may always be shown.
    pub(super) fn kind(&self) -> &'static str {
        match self.value {
            Value::Broken => "a broken value",
            Value::Null => "nothing",
            Value::Boolean(_) => "true or false",
            Value::Integer(_) => "a whole number",
            Value::Float(_) => "a number with a point",
            Value::Text(_) => "text",
            Value::List(_) => "a list",
            Value::Table(_) => "a table",
        }
    }

    /// The value as a fault may show it. Keys that hold secrets use [`Node::kind`] instead.
    pub(super) fn shown(&self) -> String {
        match &self.value {
            _ if self.hidden => "a value that was put in by ${...}".to_owned(),
            Value::Boolean(value) => value.to_string(),
            Value::Integer(value) => value.to_string(),
            Value::Float(value) => value.to_string(),
            Value::Text(text) => shown_text(text),
            _ => self.kind().to_owned(),
        }
    }
}

// A secret that was typed into the wrong place must not be shown either: keys, tokens and SAS are long, and passwords
// in addresses stand before an '@'.
fn shown_text(text: &str) -> String {
    let length = text.chars().count();
    if length > 64 {
        return format!("text of {length} characters");
    }
    let redacted = redact_url(text);
    if redacted.contains('@') || redacted.contains("***") {
        return "text that may hold a secret".to_owned();
    }
    format!("{text:?}")
}

/// The path of `key` in the table at `parent`; keys that are not plain words are quoted.
pub(super) fn join(parent: &str, key: &str) -> String {
    let plain = !key.is_empty() && key.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_' || b == b'-');
    let key = if plain { key.to_owned() } else { format!("{key:?}") };
    if parent.is_empty() { key } else { format!("{parent}.{key}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_quote_what_is_no_word() {
        assert_eq!(join("", "name"), "name");
        assert_eq!(join("kafka.properties", "group.id"), "kafka.properties.\"group.id\"");
    }

    #[test]
    fn what_may_be_a_secret_is_not_shown() {
        let check = |text: &str, expected: &str| {
            assert_eq!(Node::new("x", Value::Text(text.into())).shown(), expected);
        };
        check("gzip", "\"gzip\"");
        check("http://h:1/", "\"http://h:1/\"");
        check("user:pw@host", "text that may hold a secret");
        check("http://u:pw@h/", "text that may hold a secret");
        check("https://h/?sv=1&sig=abc", "text that may hold a secret");
        check(&"k".repeat(88), "text of 88 characters");
        let node = Node { hidden: true, ..Node::new("x", Value::Text("short".into())) };
        assert_eq!(node.shown(), "a value that was put in by ${...}");
    }
}
