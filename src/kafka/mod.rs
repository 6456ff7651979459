//! The Kafka client: the only module that knows rdkafka.
//!
//! Owns: client configuration, group membership, batch dequeue, look-ups of topics and offsets, the embedded broker.
//! Does not own: which position to read from, what to do with records.

mod assigned;
mod config;
mod consumer;
pub mod embedded;
mod lookup;
mod quiet;
mod raw;
#[cfg(test)]
mod tests;

pub use assigned::{AssignedConsumer, Received};
pub use config::{ClientSettings, check_properties, client_config};
pub use consumer::{GroupConsumer, GroupEvent};
pub use lookup::{Lookup, Watermarks};
pub use raw::{LaneQueue, MAX_BATCH, Polled, TopicHandle};

use rdkafka::error::KafkaError;
use rdkafka::types::{RDKafkaErrorCode as Code, RDKafkaRespErr};

use crate::error::Class;
use crate::model::{Secret, TopicPartition, redact_url};

/// Why the Kafka client could not do something. Messages never contain credentials.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A property that librdkafka refuses.
    #[error("the kafka client cannot be set up: {reason}")]
    Configuration {
        /// Which, and why.
        reason: String,
    },
    /// A topic that the brokers do not have.
    #[error("topic {topic:?} does not exist on the brokers: create it, or correct `topics` of the feed")]
    UnknownTopic {
        /// Its name.
        topic: String,
    },
    /// The brokers refuse us.
    #[error("the brokers do not allow it: {reason}")]
    Denied {
        /// What is missing.
        reason: String,
    },
    /// No broker answers, or not well.
    #[error("the brokers do not answer: {reason}")]
    Unavailable {
        /// Why.
        reason: String,
    },
    /// The position to read from lies outside the log.
    #[error("the offset to read next is outside the log of {partition}: {reason}")]
    OutOfRange {
        /// Which partition.
        partition: TopicPartition,
        /// What the client says, with its numbers.
        reason: String,
    },
    /// A call that came at the wrong time, such as a seek during a rebalance.
    #[error("the kafka client refused a call: {reason}")]
    Client {
        /// Why.
        reason: String,
    },
    /// The client cannot go on.
    #[error("the kafka client failed for good: {reason}")]
    Fatal {
        /// Why.
        reason: String,
    },
}

impl Error {
    /// What to do about it.
    pub fn class(&self) -> Class {
        match self {
            Error::Configuration { .. } | Error::UnknownTopic { .. } => Class::BadPlan,
            Error::Denied { .. } => Class::Denied,
            Error::Unavailable { .. } | Error::Client { .. } | Error::Fatal { .. } => Class::Retry,
            Error::OutOfRange { .. } => Class::BadData,
        }
    }

    fn configuration(error: KafkaError) -> Error {
        let reason = match error {
            // Its Display shows the value, which may be a password.
            KafkaError::ClientConfig(_, reason, key, value) => {
                let reason = Secret::new(value).cut_from(&reason);
                if reason.contains(&key) { reason } else { format!("{reason} ({key})") }
            }
            other => redact(&other.to_string()),
        };
        Error::Configuration { reason }
    }

    fn client(error: KafkaError) -> Error {
        Error::Client { reason: redact(&error.to_string()) }
    }

    /// The error behind a message that a partition delivered instead of a record.
    pub fn of_partition(partition: &TopicPartition, code: RDKafkaRespErr, text: &str) -> Error {
        Error::of_code(partition, Code::from(code), text)
    }

    fn of_code(partition: &TopicPartition, code: Code, text: &str) -> Error {
        match code {
            Code::OffsetOutOfRange | Code::AutoOffsetReset => {
                Error::OutOfRange { partition: partition.clone(), reason: redact(text) }
            }
            Code::UnknownTopic | Code::UnknownTopicOrPartition | Code::UnknownPartition => {
                Error::UnknownTopic { topic: partition.topic.to_string() }
            }
            Code::TopicAuthorizationFailed | Code::GroupAuthorizationFailed => {
                Error::Denied { reason: format!("{code} ({partition})") }
            }
            _ => Error::Unavailable { reason: redact(&format!("{code}: {text}")) },
        }
    }
}

impl crate::retry::Classify for Error {
    fn class(&self) -> Class {
        Error::class(self)
    }
}

// The values of a configuration that must not be repeated.
fn secrets_of(config: &rdkafka::ClientConfig) -> Vec<Secret> {
    let confidential = ["password", "secret", "key", "jaas", "oauthbearer", "token"];
    let map = config.config_map();
    let is_secret = |name: &str| confidential.iter().any(|word| name.contains(word));
    map.iter().filter(|(name, _)| is_secret(name)).map(|(_, value)| Secret::new(*value)).collect()
}

// librdkafka repeats configuration in some messages: passwords of SASL, keys, JAAS lines.
fn redact(text: &str) -> String {
    let text = redact_url(text);
    let secret = ["password", "sasl.", "ssl.key", "jaas", "oauthbearer", "secret"];
    let lower = text.to_ascii_lowercase();
    if secret.iter().any(|word| lower.contains(word)) && text.contains('=') {
        // What follows an equals sign may be a value; the words before it are what an operator needs.
        return text.split('=').next().map(|head| format!("{head}=***")).unwrap_or_default();
    }
    text
}
