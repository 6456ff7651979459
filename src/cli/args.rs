//! Arguments.

use std::path::PathBuf;

use clap::{Parser, Subcommand, ValueEnum};

use crate::telemetry;

/// Copies Kafka topics into Azure Blob Storage.
#[derive(Debug, Parser)]
#[command(name = "blobfeed", version, about, max_term_width = 110)]
pub(super) struct Args {
    /// Which events are logged, in the syntax of RUST_LOG: a level, or target=level pairs.
    #[arg(long, global = true, env = "BLOBFEED_LOG", default_value = "info", value_name = "FILTER")]
    pub(super) log: String,
    /// How events are logged: as text on a terminal and JSON elsewhere, or always one of them.
    #[arg(long, global = true, env = "BLOBFEED_LOG_FORMAT", value_enum, default_value_t = Log::Auto)]
    pub(super) log_format: Log,
    #[command(subcommand)]
    pub(super) command: Command,
}

#[derive(Debug, Subcommand)]
pub(super) enum Command {
    /// Run a plan: copy its topics until told to stop (SIGTERM; SIGHUP re-reads the plan).
    Run {
        /// The plan file (TOML, YAML or JSON).
        plan: PathBuf,
        /// Stop at the ends of the topics as they are now.
        #[arg(long)]
        until_end: bool,
    },
    /// Report all faults of a plan, or what it will do. Connects to nothing. Exit code 1 when there are faults.
    Check {
        /// The plan file (TOML, YAML or JSON).
        plan: PathBuf,
        /// How to print.
        #[arg(long, value_enum, default_value_t = Output::Text)]
        format: Output,
    },
    /// Show what is in blobs: format, codec, schema, records, range, metadata.
    Inspect {
        /// Files; or, with --plan, blobs in the plan's store as CONTAINER/NAME.
        #[arg(required = true, value_name = "BLOB")]
        blobs: Vec<PathBuf>,
        /// Read the blobs from the store of this plan.
        #[arg(long)]
        plan: Option<PathBuf>,
        /// How to print.
        #[arg(long, value_enum, default_value_t = Output::Text)]
        format: Output,
    },
    /// See it work with nothing installed: a broker in the process, Avro records, blobs in a folder, a crash, a restart.
    Quickstart(Quickstart),
}

#[derive(Debug, clap::Args)]
pub(super) struct Quickstart {
    /// Records to make.
    #[arg(long, default_value_t = 100_000, value_parser = clap::value_parser!(u64).range(1..))]
    pub(super) records: u64,
    /// Where blobs and offsets go, and stay; a folder that is empty or absent. Without it: a temporary folder, removed at
    /// the end.
    #[arg(long, value_name = "DIR")]
    pub(super) dir: Option<PathBuf>,
    /// Do not kill the connector midway, so that N records make exactly N.
    #[arg(long)]
    pub(super) no_kill: bool,
}

/// How data is printed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(super) enum Output {
    /// For people.
    Text,
    /// For programs.
    Json,
}

/// How events are logged.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(super) enum Log {
    /// Text on a terminal, JSON elsewhere.
    Auto,
    /// Text.
    Text,
    /// JSON, an object a line.
    Json,
}

impl From<Log> for telemetry::LogFormat {
    fn from(log: Log) -> telemetry::LogFormat {
        match log {
            Log::Auto => telemetry::LogFormat::Auto,
            Log::Text => telemetry::LogFormat::Text,
            Log::Json => telemetry::LogFormat::Json,
        }
    }
}
