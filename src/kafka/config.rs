//! librdkafka's configuration, from the plan.

use rdkafka::config::{ClientConfig, RDKafkaLogLevel};

use super::Error;
use crate::plan;

/// What the plan's properties cannot say.
#[derive(Debug, Clone)]
pub struct ClientSettings {
    /// Bytes of records that one client may fetch ahead.
    pub prefetch: usize,
    /// Distinguishes the clients of a process in broker logs.
    pub client_id: String,
}

/// Whether librdkafka takes the plan's properties; connects to nothing.
///
/// # Errors
/// [`Error::Configuration`] names the property, never its value.
pub fn check_properties(kafka: &plan::Kafka) -> Result<(), Error> {
    let settings = ClientSettings { prefetch: 1 << 20, client_id: "check".to_owned() };
    client_config(kafka, &settings).create_native_config().map(drop).map_err(Error::configuration)
}

/// The configuration of a group member: our defaults, the plan's properties, and what must be as we need it.
pub fn client_config(kafka: &plan::Kafka, settings: &ClientSettings) -> ClientConfig {
    let mut config = ClientConfig::new();
    let prefetch = settings.prefetch.max(1 << 20);
    // Defaults, which a plan may override. librdkafka's own stall a fast reader: once enough is queued it looks again only
    // after a second.
    config.set("fetch.queue.backoff.ms", "5");
    // A queued message costs some 600 bytes that no byte limit counts.
    config.set("queued.min.messages", (prefetch / 700).clamp(1_000, 1_000_000).to_string());
    // One answer comes on top of what is queued, and these limits count its bytes before they are decompressed.
    config.set("fetch.max.bytes", (prefetch / 8).clamp(1 << 20, 8 << 20).to_string());
    config.set("fetch.message.max.bytes", (prefetch / 32).clamp(1 << 16, 1 << 20).to_string());
    config.set("message.max.bytes", "1000000");
    config.set("isolation.level", "read_committed");
    config.set("client.id", &settings.client_id);
    config.set("socket.keepalive.enable", "true");
    config.set("reconnect.backoff.max.ms", "5000");
    config.set("queued.max.messages.kbytes", (prefetch / 1024).to_string());
    for (key, value) in &kafka.properties {
        config.set(key, value.expose());
    }
    // Not negotiable: the plan's loader refuses these keys.
    config.set("bootstrap.servers", &kafka.bootstrap_servers);
    config.set("group.id", &kafka.group_id);
    config.set("enable.auto.commit", "false");
    config.set("enable.auto.offset.store", "false");
    config.set("auto.offset.reset", "error");
    // The batch call would count the message at the end as a record, and the client would skip the next one whenever it
    // pauses and resumes by itself, as it does at each rebalance.
    config.set("enable.partition.eof", "false");
    config.set("allow.auto.create.topics", "false");
    let new_protocol =
        kafka.properties.get("group.protocol").is_some_and(|p| p.expose().eq_ignore_ascii_case("consumer"));
    // With the new protocol the broker assigns, and librdkafka refuses the key.
    if !new_protocol {
        config.set("partition.assignment.strategy", "cooperative-sticky");
    }
    // Who asks librdkafka for its debug contexts wants to see them (with the log filter librdkafka=trace).
    let debug = kafka.properties.contains_key("debug");
    config.set_log_level(if debug { RDKafkaLogLevel::Debug } else { RDKafkaLogLevel::Info });
    config
}
