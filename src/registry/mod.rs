//! Schemas by id from a schema registry with Confluent's API.
//!
//! Owns: one fetch per id and process, its cache, limits on what a registry may send.
//! Does not own: what a schema means (see [`crate::format`]), retries of an unavailable registry.
//! Crash: nothing is kept; schemas never change under their id, so they are fetched again.
//!
//! Source: "Schema Registry API reference" in Confluent's documentation: `GET /schemas/ids/{id}` and
//! `GET /subjects/{subject}/versions/{version}`.

mod client;
mod error;
mod references;
#[cfg(test)]
mod tests;

pub use error::Error;

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures::future::{BoxFuture, FutureExt, Shared};
use tokio::time::Instant;

use self::client::{Answer, Client};
use crate::plan;

/// Bytes of one schema's text.
const MAX_TEXT: usize = 1 << 20;
/// How long "there is none" and "it cannot be used" are believed.
const NEGATIVE: Duration = Duration::from_secs(30);
/// Negative answers that are kept at once: ids in records are anybody's.
const MAX_NEGATIVE: usize = 10_000;
/// An id that no registry gives: ids are positive numbers of 31 bits, given in ascending order.
const UNUSED_ID: u32 = i32::MAX.unsigned_abs();

/// The language that a schema is written in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SchemaKind {
    /// `AVRO`, also where the registry names none.
    Avro,
    /// `JSON`.
    Json,
    /// `PROTOBUF`.
    Protobuf,
}

/// A schema as it is registered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RegisteredSchema {
    /// Its id.
    pub id: u32,
    /// Its language.
    pub kind: SchemaKind,
    /// Its text, byte for byte.
    pub text: Arc<str>,
    /// What it takes from other subjects, directly or not: name and text, each behind those that it needs itself.
    pub references: Vec<(String, Arc<str>)>,
}

type Fetched = Result<Arc<RegisteredSchema>, Error>;
type Fetch = Shared<BoxFuture<'static, Fetched>>;

enum Entry {
    Found(Arc<RegisteredSchema>),
    Negative { error: Error, until: Instant },
    Pending(Fetch),
}

/// A schema registry. Cloning shares connections and cache.
#[derive(Clone)]
pub struct SchemaRegistry {
    client: Arc<Client>,
    entries: Arc<Mutex<HashMap<u32, Entry>>>,
}

impl SchemaRegistry {
    /// A registry as the plan names it; asks nothing yet.
    ///
    /// # Errors
    /// [`Error::Configuration`] when it can never work, or would send a password in the clear.
    pub fn new(plan: &plan::SchemaRegistry) -> Result<SchemaRegistry, Error> {
        Ok(SchemaRegistry { client: Arc::new(Client::new(plan)?), entries: Arc::default() })
    }

    /// The schema with this id, from the cache, or by one attempt to fetch it that all who ask now share. A schema is
    /// kept for ever, "there is none" and "it cannot be used" for 30 seconds, other failures not at all.
    ///
    /// Cancel safe: a fetch goes on as long as anybody waits for it, and is taken up again by whoever asks next.
    ///
    /// # Errors
    /// [`Error`]; transient ones are for the caller to repeat.
    pub async fn schema(&self, id: u32) -> Result<Arc<RegisteredSchema>, Error> {
        if id > UNUSED_ID {
            return Err(Error::NotFound { id });
        }
        let fetch = {
            let mut entries = self.entries();
            match entries.get(&id) {
                Some(Entry::Found(schema)) => return Ok(Arc::clone(schema)),
                Some(Entry::Negative { error, until }) if Instant::now() < *until => {
                    return Err(error.clone());
                }
                Some(Entry::Pending(fetch)) => fetch.clone(),
                Some(Entry::Negative { .. }) | None => {
                    let fetch = fetch(Arc::clone(&self.client), id).boxed().shared();
                    entries.insert(id, Entry::Pending(fetch.clone()));
                    fetch
                }
            }
        };
        let answer = fetch.clone().await;
        self.settle(id, &fetch, &answer);
        answer
    }

    /// The schema with this id, if it is in the cache.
    pub fn cached(&self, id: u32) -> Option<Arc<RegisteredSchema>> {
        match self.entries().get(&id) {
            Some(Entry::Found(schema)) => Some(Arc::clone(schema)),
            _ => None,
        }
    }

    /// Whether a registry answers and lets us read schemas: asks for one that cannot exist.
    ///
    /// # Errors
    /// [`Error`] as [`SchemaRegistry::schema`] would have it.
    pub async fn probe(&self) -> Result<(), Error> {
        self.client.get(&by_id(UNUSED_ID)).await.map(|_| ())
    }

    // The first of those who waited replaces the fetch by its answer.
    fn settle(&self, id: u32, fetch: &Fetch, answer: &Fetched) {
        let mut entries = self.entries();
        if !matches!(entries.get(&id), Some(Entry::Pending(pending)) if pending.ptr_eq(fetch)) {
            return;
        }
        match answer {
            Ok(schema) => {
                entries.insert(id, Entry::Found(Arc::clone(schema)));
            }
            Err(error @ (Error::NotFound { .. } | Error::Invalid { .. })) => {
                let now = Instant::now();
                if entries.len() >= MAX_NEGATIVE {
                    entries
                        .retain(|_, entry| !matches!(entry, Entry::Negative { until, .. } if *until <= now));
                }
                entries.insert(id, Entry::Negative { error: error.clone(), until: now + NEGATIVE });
            }
            Err(_) => {
                entries.remove(&id);
            }
        }
    }

    fn entries(&self) -> MutexGuard<'_, HashMap<u32, Entry>> {
        self.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl std::fmt::Debug for SchemaRegistry {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "SchemaRegistry({} ids)", self.entries().len())
    }
}

fn by_id(id: u32) -> String {
    format!("schemas/ids/{id}")
}

async fn fetch(client: Arc<Client>, id: u32) -> Fetched {
    let invalid = |reason: &str| Error::Invalid { id, reason: reason.to_owned() };
    let sent = match client.get(&by_id(id)).await? {
        Answer::Sent(sent) => sent,
        Answer::TooLarge => return Err(invalid("the registry's answer is too large")),
        Answer::Absent => return Err(Error::NotFound { id }),
    };
    if sent.schema.len() > MAX_TEXT {
        return Err(invalid("its text is larger than 1 MiB"));
    }
    let kind = match sent.schema_type.as_deref() {
        None | Some("AVRO") => SchemaKind::Avro,
        Some("JSON") => SchemaKind::Json,
        Some("PROTOBUF") => SchemaKind::Protobuf,
        Some(_) => return Err(invalid("its language is not known")),
    };
    let references = references::resolve(&client, id, sent.references.unwrap_or_default()).await?;
    Ok(Arc::new(RegisteredSchema { id, kind, text: sent.schema.into(), references }))
}
