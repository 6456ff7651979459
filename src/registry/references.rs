//! Follows a schema's references to other subjects.
//!
//! Owns: order, limits, cycles.
//! Does not own: what references mean for a format.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use super::client::{Answer, Client, Sent, SentReference, segment};
use super::{Error, MAX_TEXT};

/// References behind references.
const MAX_DEPTH: usize = 32;
/// Schemas that one schema refers to, directly or not.
const MAX_REFERENCES: usize = 200;
/// Bytes of their texts together.
const MAX_TEXTS: usize = 4 << 20;

/// What a schema takes from others: name and text, each behind those that it needs itself.
pub(super) type References = Vec<(String, Arc<str>)>;

type Key = (String, i64);

struct Open {
    key: Key,
    name: String,
    text: Arc<str>,
    left: std::vec::IntoIter<SentReference>,
}

/// Fetches all that `references` of schema `id` need.
pub(super) async fn resolve(
    client: &Client,
    id: u32,
    references: Vec<SentReference>,
) -> Result<References, Error> {
    let invalid = |reason: String| Error::Invalid { id, reason };
    let mut done: HashMap<Key, Arc<str>> = HashMap::new();
    let mut named: HashSet<(String, Key)> = HashSet::new();
    let mut resolved = Vec::new();
    let mut bytes = 0;
    let mut roots = references.into_iter();
    let mut path: Vec<Open> = Vec::new();
    loop {
        let next = path.last_mut().map_or(&mut roots, |open| &mut open.left).next();
        let Some(reference) = next else {
            let Some(open) = path.pop() else { return Ok(resolved) };
            named.insert((open.name.clone(), open.key.clone()));
            resolved.push((open.name, Arc::clone(&open.text)));
            done.insert(open.key, open.text);
            continue;
        };
        let SentReference { name, subject, version } = reference;
        let key = (subject, version);
        if path.iter().any(|open| open.key == key) {
            return Err(invalid(format!("its references form a cycle through subject {:?}", key.0)));
        }
        if let Some(text) = done.get(&key) {
            if named.insert((name.clone(), key)) {
                resolved.push((name, Arc::clone(text)));
            }
            continue;
        }
        if path.len() == MAX_DEPTH {
            return Err(invalid(format!("its references are nested more than {MAX_DEPTH} deep")));
        }
        if done.len() + path.len() == MAX_REFERENCES {
            return Err(invalid(format!("it refers to more than {MAX_REFERENCES} schemas")));
        }
        let sent = fetch(client, id, &key).await?;
        bytes += sent.schema.len();
        if bytes > MAX_TEXTS {
            return Err(invalid(format!("its references are larger than {MAX_TEXTS} bytes")));
        }
        let left = sent.references.unwrap_or_default().into_iter();
        path.push(Open { key, name, text: sent.schema.into(), left });
    }
}

async fn fetch(client: &Client, id: u32, (subject, version): &Key) -> Result<Sent, Error> {
    let invalid = |what: &str| Error::Invalid {
        id,
        reason: format!("its reference to version {version} of subject {subject:?} {what}"),
    };
    let Some(segment) = segment(subject) else { return Err(invalid("cannot be asked for")) };
    if *version < 1 {
        return Err(invalid("cannot be asked for"));
    }
    // A subject that was deleted softly is still what records were written with.
    let path = format!("subjects/{segment}/versions/{version}?deleted=true");
    match client.get(&path).await? {
        Answer::Absent => Err(invalid("leads nowhere")),
        Answer::TooLarge => Err(invalid("is too large")),
        Answer::Sent(sent) if sent.schema.len() > MAX_TEXT => Err(invalid("is too large")),
        Answer::Sent(sent) => Ok(sent),
    }
}
