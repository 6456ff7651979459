//! A client context for clients that nobody watches: what they report goes to the debug log.

use rdkafka::ClientContext;
use rdkafka::config::RDKafkaLogLevel;
use rdkafka::consumer::ConsumerContext;
use rdkafka::error::KafkaError;
use tracing::debug;

use super::redact;

pub(super) struct Quiet;

impl ClientContext for Quiet {
    fn log(&self, _: RDKafkaLogLevel, facility: &str, message: &str) {
        debug!(target: "librdkafka", facility, "{}", redact(message));
    }

    fn error(&self, error: KafkaError, reason: &str) {
        debug!(%error, reason = redact(reason), "kafka client reports an error");
    }
}

impl ConsumerContext for Quiet {}
