//! Where the servers are.

use std::time::Duration;

use tokio::net::TcpStream;
use tokio::sync::OnceCell;

fn variable(name: &str, default: &str) -> String {
    std::env::var(name).ok().filter(|value| !value.is_empty()).unwrap_or_else(|| default.to_owned())
}

/// Kafka, `host:port`.
pub(crate) fn kafka() -> String {
    variable("BLOBFEED_TEST_KAFKA", "127.0.0.1:9092")
}

/// Kafka's listener with SASL_SSL, `host:port`.
pub(crate) fn kafka_sasl() -> String {
    variable("BLOBFEED_TEST_KAFKA_SASL", "127.0.0.1:9093")
}

/// ZooKeeper, `host:port`.
pub(crate) fn zookeeper() -> String {
    variable("BLOBFEED_TEST_ZOOKEEPER", "127.0.0.1:2181")
}

/// Azurite's blob service, with the account in the path.
pub(crate) fn azurite() -> String {
    variable("BLOBFEED_TEST_AZURITE", "http://127.0.0.1:10000/devstoreaccount1")
}

/// The base of Confluent's API.
pub(crate) fn registry() -> String {
    variable("BLOBFEED_TEST_REGISTRY", "http://127.0.0.1:8081/apis/ccompat/v7")
}

/// Of a URL: `host:port`.
pub(crate) fn address(url: &str) -> String {
    let url = url::Url::parse(url).unwrap_or_else(|error| panic!("{url}: {error}"));
    let port = url.port_or_known_default().expect("http URLs have a port");
    format!("{}:{port}", url.host_str().expect("http URLs have a host"))
}

/// # Panics
/// When a server does not answer.
pub(crate) async fn demand() {
    static SEEN: OnceCell<()> = OnceCell::const_new();
    SEEN.get_or_init(async || {
        let servers = [
            ("Kafka", kafka()),
            ("ZooKeeper", zookeeper()),
            ("Azurite", address(&azurite())),
            ("the schema registry", address(&registry())),
        ];
        for (name, address) in servers {
            let connected = tokio::time::timeout(Duration::from_secs(5), TcpStream::connect(&address)).await;
            assert!(
                matches!(connected, Ok(Ok(_))),
                "{name} does not answer at {address}: run `scripts/servers up`, or `scripts/test`, which does it",
            );
        }
    })
    .await;
}
