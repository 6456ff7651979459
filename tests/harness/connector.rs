//! The connector as a child process.
//!
//! Every output that it makes is held against the storage key: no test can end well while the key is in one.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use serde_json::Value;

use super::{SOON, azurite, eventually};

/// A running `blobfeed`.
pub(crate) struct Connector {
    child: Mutex<Child>,
    log: PathBuf,
    output: PathBuf,
    http: reqwest::Client,
}

/// What a process left behind.
#[derive(Debug, Clone)]
pub(crate) struct Exit {
    /// Its exit code; none when a signal ended it.
    pub(crate) code: Option<i32>,
    /// Standard error.
    pub(crate) log: String,
    /// Standard output.
    pub(crate) output: String,
    /// How long it took to end, from the call.
    pub(crate) took: Duration,
}

impl Exit {
    /// The end of the log, for messages.
    pub(crate) fn tail(&self) -> String {
        tail(&self.log)
    }

    /// # Panics
    /// Unless the code is `code` and the log names each of `words`.
    pub(crate) fn demand(&self, code: i32, words: &[&str]) {
        assert_eq!(self.code, Some(code), "exit code; log:\n{}", self.tail());
        let said = format!("{}{}", self.log, self.output);
        for word in words {
            assert!(said.contains(word), "{word:?} is not in:\n{}", self.tail());
        }
    }
}

fn tail(log: &str) -> String {
    let lines: Vec<&str> = log.lines().collect();
    lines[lines.len().saturating_sub(40)..].join("\n")
}

/// `blobfeed` with `arguments`, in the environment of the tests.
pub(crate) fn command(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_blobfeed"));
    command.args(arguments).env("AZURE_STORAGE_KEY", azurite::KEY).stdin(Stdio::null());
    for name in ["BLOBFEED_LOG", "BLOBFEED_LOG_FORMAT", "RUST_LOG"] {
        command.env_remove(name);
    }
    command
}

/// Runs `blobfeed` with `arguments` to its end.
pub(crate) fn call(arguments: &[&str]) -> Exit {
    let begun = Instant::now();
    let done = command(arguments).output().expect("the program starts");
    let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
    let exit = Exit {
        code: done.status.code(),
        log: text(done.stderr),
        output: text(done.stdout),
        took: begun.elapsed(),
    };
    demand_no_key(&exit.log);
    demand_no_key(&exit.output);
    exit
}

impl Connector {
    /// Starts `blobfeed run` with JSON logs, which go to a file in `folder`.
    pub(crate) fn start(folder: &Path, plan: &Path, arguments: &[&str]) -> Connector {
        let mut all = vec!["--log-format", "json", "run", plan.to_str().expect("temporary paths are UTF-8")];
        all.extend_from_slice(arguments);
        Connector::spawn(folder, command(&all))
    }

    /// Starts `command`, whose outputs go to files in `folder`.
    pub(crate) fn spawn(folder: &Path, mut command: Command) -> Connector {
        let number = rand::random::<u32>();
        let log = folder.join(format!("log-{number:08x}"));
        let output = folder.join(format!("output-{number:08x}"));
        let file = |path: &Path| File::create(path).expect("a file in the case's folder");
        let child = command.stdout(file(&output)).stderr(file(&log)).spawn().expect("the program starts");
        Connector { child: Mutex::new(child), log, output, http: reqwest::Client::new() }
    }

    /// The process id.
    pub(crate) fn pid(&self) -> u32 {
        self.lock().id()
    }

    /// Sends a signal by its name, such as TERM.
    pub(crate) fn signal(&self, name: &str) {
        let pid = self.pid().to_string();
        let sent = Command::new("kill").args([&format!("-{name}"), &pid]).status().expect("kill is there");
        assert!(sent.success(), "SIG{name} to process {pid}");
    }

    /// Kills it, as when a machine dies.
    pub(crate) fn kill(self) -> Exit {
        let begun = Instant::now();
        let mut child = self.lock();
        assert!(
            child.try_wait().expect("a child").is_none(),
            "ended before it was killed: {}",
            tail(&self.log())
        );
        child.kill().expect("a child can be killed");
        let status = child.wait().expect("a child");
        drop(child);
        self.left(status.code(), begun)
    }

    /// Waits until it ends.
    ///
    /// # Panics
    /// When it does not within `limit`.
    pub(crate) async fn exit(self, limit: Duration) -> Exit {
        let begun = Instant::now();
        let code = loop {
            if let Some(status) = self.lock().try_wait().expect("a child") {
                break status.code();
            }
            assert!(begun.elapsed() < limit, "still running after {limit:?}: {}", tail(&self.log()));
            tokio::time::sleep(Duration::from_millis(20)).await;
        };
        self.left(code, begun)
    }

    fn left(&self, code: Option<i32>, begun: Instant) -> Exit {
        let output = std::fs::read_to_string(&self.output).unwrap_or_default();
        let exit = Exit { code, log: self.log(), output, took: begun.elapsed() };
        demand_no_key(&exit.log);
        demand_no_key(&exit.output);
        exit
    }

    /// What it has logged so far.
    pub(crate) fn log(&self) -> String {
        let bytes = std::fs::read(&self.log).unwrap_or_default();
        String::from_utf8_lossy(&bytes).into_owned()
    }

    /// Waits until `look` finds something, as long as the connector lives.
    pub(crate) async fn eventually<T>(
        &self,
        what: &str,
        mut look: impl AsyncFnMut() -> Result<T, String>,
    ) -> T {
        eventually(what, SOON, async || {
            let seen = look().await;
            if seen.is_err()
                && let Some(status) = self.lock().try_wait().expect("a child")
            {
                panic!("ended with {status} while {what} was waited for: {}", tail(&self.log()));
            }
            seen
        })
        .await
    }

    /// Waits until the log has `words` in one line; the line.
    pub(crate) async fn says(&self, words: &[&str]) -> String {
        self.eventually(&format!("{words:?} in the log"), async || {
            let log = self.log();
            let line = log.lines().find(|line| words.iter().all(|word| line.contains(word)));
            line.map(str::to_owned).ok_or_else(|| tail(&log))
        })
        .await
    }

    /// The last address that its http side has opened.
    pub(crate) async fn address(&self) -> String {
        self.eventually("the http address in the log", async || {
            let log = self.log();
            let line = log.lines().rev().find(|line| line.contains("http is served"));
            let line: Value =
                line.and_then(|line| serde_json::from_str(line).ok()).ok_or_else(|| tail(&log))?;
            line["address"].as_str().map(str::to_owned).ok_or_else(|| line.to_string())
        })
        .await
    }

    /// GET of a path of its http side: status and text.
    pub(crate) async fn get(&self, path: &str) -> Result<(u16, String), String> {
        let url = format!("http://{}{path}", self.address().await);
        let answer = self.http.get(&url).send().await.map_err(|e| e.to_string())?;
        let status = answer.status().as_u16();
        let text = answer.text().await.map_err(|e| e.to_string())?;
        demand_no_key(&text);
        Ok((status, text))
    }

    /// `/status`.
    pub(crate) async fn status(&self) -> Result<Value, String> {
        let (code, text) = self.get("/status").await?;
        assert_eq!(code, 200, "/status: {text}");
        serde_json::from_str(&text).map_err(|e| format!("{e}: {text}"))
    }

    /// `/status` of one partition of the feed, by its number.
    pub(crate) async fn partition(&self, number: i32) -> Result<Value, String> {
        let status = self.status().await?;
        let partitions = status["partitions"].as_object().ok_or_else(|| status.to_string())?;
        let found = partitions.values().find(|p| p["partition"] == number);
        found.cloned().ok_or_else(|| format!("partition {number} is not in {status}"))
    }

    /// How many partitions it has.
    pub(crate) async fn assigned(&self) -> usize {
        let status = self.status().await;
        status.ok().and_then(|status| status["partitions"].as_object().map(serde_json::Map::len)).unwrap_or(0)
    }

    /// Waits until `/readyz` is content.
    pub(crate) async fn is_ready(&self) {
        self.eventually("/readyz to answer 200", async || match self.get("/readyz").await? {
            (200, _) => Ok(()),
            (code, text) => Err(format!("{code} {text}")),
        })
        .await;
    }

    /// Waits until `/readyz` says no and names each of `words`.
    pub(crate) async fn is_unready(&self, words: &[&str]) {
        self.eventually(&format!("/readyz to answer 503 with {words:?}"), async || {
            match self.get("/readyz").await? {
                (503, text) if words.iter().all(|word| text.contains(word)) => Ok(()),
                (code, text) => Err(format!("{code} {text}")),
            }
        })
        .await;
    }

    /// The value of a metric without labels, or the sum over its labels.
    pub(crate) async fn metric(&self, name: &str) -> f64 {
        let (code, text) = self.get("/metrics").await.expect("/metrics answers");
        assert_eq!(code, 200, "/metrics: {text}");
        let of_name = |line: &&str| {
            line.strip_prefix(name).is_some_and(|rest| rest.starts_with(' ') || rest.starts_with('{'))
        };
        let value = |line: &str| line.rsplit(' ').next().and_then(|value| value.parse::<f64>().ok());
        text.lines().filter(of_name).filter_map(value).sum()
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Child> {
        self.child.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Connector {
    fn drop(&mut self) {
        let mut child = self.lock();
        // Fails when it has ended already.
        let _ = child.kill();
        let _ = child.wait();
        drop(child);
        if std::thread::panicking() {
            eprintln!("the end of the connector's log:\n{}", tail(&self.log()));
        }
    }
}

fn demand_no_key(text: &str) {
    // Escaped for a URL or for JSON it would still be the key: a stretch without special characters tells.
    for part in azurite::KEY.split(['/', '+', '=']).filter(|part| part.len() > 10) {
        assert!(!text.contains(part), "the storage key is in an output");
    }
}
