//! A client context for clients that nobody watches: what they report goes to the debug log, and the last of it can be asked for.

use std::sync::{Mutex, PoisonError};

use rdkafka::ClientContext;
use rdkafka::config::{ClientConfig, RDKafkaLogLevel};
use rdkafka::consumer::ConsumerContext;
use rdkafka::error::KafkaError;
use tracing::debug;

use super::{redact, secrets_of};
use crate::model::Secret;

pub(super) struct Quiet {
    secrets: Vec<Secret>,
    last: Mutex<Option<String>>,
}

impl Quiet {
    /// A context for a client with this configuration, whose secrets it never repeats.
    pub(super) fn new(config: &ClientConfig) -> Quiet {
        Quiet { secrets: secrets_of(config), last: Mutex::default() }
    }

    /// What the client has reported last: often the cause of an answer that did not come.
    pub(super) fn last_error(&self) -> Option<String> {
        self.last.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn clean(&self, text: &str) -> String {
        self.secrets.iter().fold(redact(text), |text, secret| secret.cut_from(&text))
    }
}

impl ClientContext for Quiet {
    fn log(&self, level: RDKafkaLogLevel, facility: &str, message: &str) {
        let message = self.clean(message);
        debug!(target: "librdkafka", facility, message);
        if (level as i32) <= RDKafkaLogLevel::Error as i32 {
            // "[thrd:...]: broker: cause": the thread means nothing to an operator.
            let cause = message.split_once("]: ").map_or(message.as_str(), |(_, cause)| cause);
            *self.last.lock().unwrap_or_else(PoisonError::into_inner) = Some(cause.to_owned());
        }
    }

    fn error(&self, error: KafkaError, reason: &str) {
        debug!(%error, reason = self.clean(reason), "kafka client reports an error");
    }
}

impl ConsumerContext for Quiet {}
