//! The helpers in `tests/support`, run by the Python that `scripts/python-env` prints.

use std::path::{Path, PathBuf};
use std::process::Stdio;

use tokio::process::Command;
use tokio::sync::OnceCell;

async fn interpreter() -> &'static str {
    static FOUND: OnceCell<String> = OnceCell::const_new();
    FOUND
        .get_or_init(async || {
            let script = root().join("scripts/python-env");
            let done = Command::new(&script).stdin(Stdio::null()).output().await;
            let done = done.unwrap_or_else(|error| panic!("{}: {error}", script.display()));
            let said = String::from_utf8_lossy(&done.stderr);
            assert!(done.status.success(), "{}: {said}", script.display());
            String::from_utf8(done.stdout).expect("a path").trim().to_owned()
        })
        .await
}

/// The checkout.
pub(crate) fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// What a helper printed, and whether it was content.
pub(crate) struct Answer {
    /// Standard output.
    pub(crate) text: String,
    /// Standard error.
    pub(crate) complaints: String,
    /// Whether it exited with 0.
    pub(crate) ok: bool,
}

/// Runs `tests/support/<script>`.
pub(crate) async fn ask<A: AsRef<std::ffi::OsStr>>(script: &str, arguments: &[A]) -> Answer {
    let path: PathBuf = root().join("tests/support").join(script);
    let mut command = Command::new(interpreter().await);
    command.arg(&path).args(arguments).stdin(Stdio::null());
    let done = command.output().await.unwrap_or_else(|error| panic!("{script}: {error}"));
    Answer {
        text: String::from_utf8(done.stdout).expect("helpers print UTF-8"),
        complaints: String::from_utf8_lossy(&done.stderr).into_owned(),
        ok: done.status.success(),
    }
}

/// The same, for helpers that must succeed.
pub(crate) async fn tell<A: AsRef<std::ffi::OsStr>>(script: &str, arguments: &[A]) -> String {
    let answer = ask(script, arguments).await;
    assert!(answer.ok, "{script}: {}", answer.complaints);
    answer.text
}
