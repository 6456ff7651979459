//! The command line.
//!
//! Owns: arguments, exit codes, signals, what is printed.
//! Does not own: anything that a library user would want.

mod args;
mod check;
mod inspect;
mod quickstart;
mod run;

use std::process::ExitCode;

use clap::Parser as _;

use args::{Args, Command};

/// Exit codes, part of the interface.
mod exit {
    /// Done.
    pub(super) const DONE: u8 = 0;
    /// `check` found faults.
    pub(super) const FAULTS: u8 = 1;
    /// The command line is wrong (clap's own code).
    pub(super) const USAGE: u8 = 2;
    /// The run failed.
    pub(super) const FAILED: u8 = 3;
    /// `run` with a bad plan (EX_CONFIG).
    pub(super) const BAD_PLAN: u8 = 78;
}

// A panic is a broken invariant. A task that is gone would leave its partition waiting in silence; a process that is gone
// is restarted, and a crash at any point is what the commit protocol is made for.
fn abort_on_panic() {
    let report = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |info| {
        report(info);
        tracing::error!(%info, "this is a fault of blobfeed: the process ends, a restart resumes behind the last commit");
        std::process::abort();
    }));
}

/// Runs the command line of the process.
pub fn main() -> ExitCode {
    let args = Args::parse();
    if let Err(reason) = crate::telemetry::init_logging(args.log_format.into(), &args.log) {
        eprintln!("error: {reason}");
        return ExitCode::from(exit::USAGE);
    }
    abort_on_panic();
    let runtime = match tokio::runtime::Builder::new_multi_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => {
            eprintln!("error: threads cannot be started: {error}");
            return ExitCode::from(exit::FAILED);
        }
    };
    let code = match args.command {
        Command::Run { plan, until_end } => runtime.block_on(run::run(&plan, until_end)),
        Command::Check { plan, format } => check::check(&plan, format),
        Command::Inspect { blobs, plan, format } => {
            runtime.block_on(inspect::run(&blobs, plan.as_deref(), format))
        }
        Command::Quickstart(options) => runtime.block_on(quickstart::quickstart(options)),
    };
    // Look-ups at brokers that do not answer may still block a thread for seconds.
    runtime.shutdown_background();
    ExitCode::from(code)
}
