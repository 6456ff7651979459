//! Why a schema could not be had.

use std::sync::Arc;
use std::time::Duration;

use crate::error::Class;

/// Why a request to the schema registry failed. Cloning shares the source: several callers may wait for one fetch.
///
/// Messages never contain credentials.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// No answer, or one that says "not now", or one that is no registry's. The schema may well exist.
    #[error("schema registry {registry} is not available: {reason}")]
    Unavailable {
        /// Its URL.
        registry: String,
        /// What happened.
        reason: String,
        /// How long it asks to wait.
        retry_after: Option<Duration>,
        /// Why, where no answer came.
        #[source]
        source: Option<Arc<reqwest::Error>>,
    },
    /// Credentials are wrong or lack a permission (401, 403).
    #[error(
        "schema registry {registry} does not allow reading schemas (HTTP {status}); check username, password and that they may read all subjects"
    )]
    Denied {
        /// Its URL.
        registry: String,
        /// The HTTP status.
        status: u16,
    },
    /// The registry says that it has no schema of this id.
    #[error("the schema registry has no schema {id}")]
    NotFound {
        /// The id.
        id: u32,
    },
    /// The registry has the schema, and it cannot be used.
    #[error("schema {id} cannot be used: {reason}")]
    Invalid {
        /// The id.
        id: u32,
        /// Why.
        reason: String,
    },
    /// The registry refuses a request that it should know.
    #[error("schema registry {registry} refused a request (HTTP {status}); is its URL right? {message}")]
    Refused {
        /// Its URL.
        registry: String,
        /// The HTTP status.
        status: u16,
        /// What it said, cut to a readable length.
        message: String,
    },
    /// The plan's schema registry section cannot work.
    #[error("the schema registry cannot be used: {reason}")]
    Configuration {
        /// What is wrong and what to do.
        reason: String,
    },
}

impl Error {
    /// What to do about it.
    pub fn class(&self) -> Class {
        match self {
            Error::Unavailable { .. } => Class::Retry,
            Error::Denied { .. } => Class::Denied,
            Error::NotFound { .. } | Error::Invalid { .. } => Class::BadData,
            Error::Refused { .. } | Error::Configuration { .. } => Class::BadPlan,
        }
    }

    /// How long the registry asked to wait before the next attempt.
    pub fn retry_after(&self) -> Option<Duration> {
        match self {
            Error::Unavailable { retry_after, .. } => *retry_after,
            _ => None,
        }
    }

    /// A short word for metrics.
    pub fn kind(&self) -> &'static str {
        match self {
            Error::Unavailable { .. } => "unavailable",
            Error::Denied { .. } => "denied",
            Error::NotFound { .. } => "not_found",
            Error::Invalid { .. } => "invalid",
            Error::Refused { .. } => "refused",
            Error::Configuration { .. } => "configuration",
        }
    }
}

impl crate::retry::Classify for Error {
    fn class(&self) -> Class {
        Error::class(self)
    }

    fn retry_after(&self) -> Option<Duration> {
        Error::retry_after(self)
    }
}
