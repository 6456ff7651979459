//! Schemas by id, compiled.
//!
//! Owns: the compiled schemas of the process.
//! Does not own: fetching them once and keeping negative answers (see [`crate::registry`]).

use std::collections::HashMap;
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use tracing::{info, warn};

use crate::error::chain;
use crate::format::avro::AvroSchema;
use crate::registry::{self, SchemaKind, SchemaRegistry};
use crate::retry;
use crate::telemetry::Telemetry;

/// Why there is no schema of an id that a record names.
#[derive(Debug, Clone, thiserror::Error)]
#[error("schema id {id}: {reason}")]
pub struct SchemaFault {
    /// The id.
    pub id: u32,
    /// What is wrong with it.
    pub reason: String,
}

pub(super) struct Schemas {
    registry: Option<SchemaRegistry>,
    compiled: RwLock<HashMap<u32, Arc<AvroSchema>>>,
    telemetry: Telemetry,
}

impl Schemas {
    pub(super) fn new(registry: Option<SchemaRegistry>, telemetry: Telemetry) -> Schemas {
        Schemas { registry, compiled: RwLock::default(), telemetry }
    }

    /// The schema, if it has been fetched before.
    pub(super) fn known(&self, id: u32) -> Option<Arc<AvroSchema>> {
        self.compiled.read().unwrap_or_else(PoisonError::into_inner).get(&id).cloned()
    }

    /// Fetches and compiles a schema; waits as long as the registry does not answer.
    pub(super) async fn fetch(&self, id: u32) -> Result<Arc<AvroSchema>, SchemaFault> {
        if let Some(known) = self.known(id) {
            return Ok(known);
        }
        let fault = |reason: String| SchemaFault { id, reason };
        let Some(registry) = &self.registry else {
            return Err(fault("the plan names no schema registry".into()));
        };
        let on_failure = |error: &registry::Error, attempts: u32, wait: Duration| {
            let reason = chain(error);
            self.telemetry.metrics.failure("schema", "unavailable");
            warn!(id, attempts, ?wait, error = reason, "schema not fetched, will retry");
            self.telemetry.health.raise("schema registry", reason);
        };
        let fetched = retry::forever(|_| registry.schema(id), on_failure).await;
        if fetched.as_ref().err().is_none_or(|e| !e.class().is_transient()) {
            self.telemetry.health.clear("schema registry");
        }
        let schema = fetched.map_err(|e| fault(chain(&e)))?;
        if schema.kind != SchemaKind::Avro {
            return Err(fault(format!("it is a {:?} schema, not an Avro one", schema.kind)));
        }
        let compiled = AvroSchema::with_references(id, &schema.text, &schema.references);
        let compiled = Arc::new(compiled.map_err(|e| fault(chain(&e)))?);
        info!(id, bytes = compiled.text.len(), "schema fetched");
        self.compiled.write().unwrap_or_else(PoisonError::into_inner).insert(id, compiled.clone());
        Ok(compiled)
    }
}
