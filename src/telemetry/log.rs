//! Set-up of logging.

use std::io::IsTerminal;

use tracing_subscriber::EnvFilter;

/// How log lines look.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LogFormat {
    /// Text on a terminal, JSON elsewhere.
    Auto,
    /// One line of text an event.
    Text,
    /// One JSON object an event.
    Json,
}

/// Sends events to standard error. `filter` is in the syntax of `RUST_LOG`, for example `info,librdkafka=debug`; a
/// filter that cannot be read is an error with its reason.
///
/// # Errors
/// The reason why `filter` cannot be read.
pub fn init(format: LogFormat, filter: &str) -> Result<(), String> {
    // The SDK reports each failed attempt, and so do we, with what happens next. What the user says comes later and wins.
    let all = format!("azure_core=warn,typespec_client_core=warn,{filter}");
    let filter = EnvFilter::try_new(all).map_err(|e| format!("log filter {filter:?}: {e}"))?;
    let terminal = std::io::stderr().is_terminal();
    let builder = tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr);
    let json = match format {
        LogFormat::Auto => !terminal,
        LogFormat::Text => false,
        LogFormat::Json => true,
    };
    // A second call in one process (tests) keeps the first subscriber.
    let _ = if json {
        builder.json().flatten_event(true).with_current_span(false).try_init()
    } else {
        builder.with_ansi(terminal).with_target(false).try_init()
    };
    Ok(())
}
