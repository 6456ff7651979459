//! A Kafka of a test's own, which may be killed without harm to others.

use std::path::PathBuf;
use std::process::Stdio;

use tokio::process::Command;

use super::{Case, python};

/// A broker; ends when it is dropped.
pub(crate) struct PrivateKafka {
    state: PathBuf,
    port: u16,
}

impl PrivateKafka {
    /// Starts a broker that keeps its state in the case's folder.
    pub(crate) async fn start(case: &Case) -> PrivateKafka {
        let state = case.path("kafka");
        std::fs::create_dir(&state).expect("a folder can be made");
        // What is downloaded once need not be downloaded again.
        let shared = servers_folder().join("packages");
        std::fs::create_dir_all(&shared).expect("a folder can be made");
        std::os::unix::fs::symlink(&shared, state.join("packages")).expect("a link can be made");
        let kafka = PrivateKafka { state, port: three_free_ports() };
        kafka.servers(&["up", "kafka"]).await;
        kafka
    }

    /// `host:port`.
    pub(crate) fn address(&self) -> String {
        format!("127.0.0.1:{}", self.port)
    }

    /// Kills the broker, as when its machine dies.
    pub(crate) async fn kill(&self) {
        self.servers(&["kill", "kafka"]).await;
    }

    /// Starts it again, and waits until it answers.
    pub(crate) async fn up(&self) {
        self.servers(&["up", "kafka"]).await;
    }

    fn command(&self, arguments: &[&str]) -> std::process::Command {
        let mut command = std::process::Command::new(python::root().join("scripts/servers"));
        command
            .args(arguments)
            .env("BLOBFEED_SERVERS_DIR", &self.state)
            .env("BLOBFEED_KAFKA_PORT", self.port.to_string())
            .stdin(Stdio::null());
        command
    }

    async fn servers(&self, arguments: &[&str]) {
        let done = Command::from(self.command(arguments)).output().await.expect("scripts/servers starts");
        let said = String::from_utf8_lossy(&done.stderr);
        assert!(done.status.success(), "scripts/servers {arguments:?}: {said}");
    }
}

impl Drop for PrivateKafka {
    fn drop(&mut self) {
        let _ = self.command(&["down", "kafka"]).output();
    }
}

/// Where `scripts/servers` keeps its state.
pub(crate) fn servers_folder() -> PathBuf {
    let chosen = std::env::var_os("BLOBFEED_SERVERS_DIR").filter(|folder| !folder.is_empty());
    chosen.map_or_else(|| python::root().join(".servers"), PathBuf::from)
}

// Of a port that was free a moment ago somebody else may make use; the next start of the test finds another.
fn three_free_ports() -> u16 {
    loop {
        let bind = |port: u16| std::net::TcpListener::bind(("127.0.0.1", port));
        let first = bind(0).expect("a free port");
        let port = first.local_addr().expect("a bound socket has an address").port();
        if port < 65_000 && bind(port + 1).is_ok() && bind(port + 2).is_ok() {
            return port;
        }
    }
}
