//! `blobfeed run`: the service, its signals, its exit code.

use std::path::Path;
use std::pin::pin;

use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio_util::sync::CancellationToken;
use tracing::{error, info, warn};

use super::exit;
use crate::error::{Class, chain};
use crate::http::{About, Server};
use crate::plan::{self, Plan};
use crate::runtime::{Connector, Error, Outcome};
use crate::telemetry::Telemetry;

/// Runs the plan until it is told to stop, or to the ends of the topics.
pub(super) async fn run(path: &Path, until_end: bool) -> u8 {
    // Before anything else: a signal that comes while the plan is read is answered like any other.
    let mut signals = match Signals::new() {
        Ok(signals) => signals,
        Err(error) => {
            error!(%error, "signals cannot be handled");
            return exit::FAILED;
        }
    };
    let mut plan = match plan::load_from_environment(path) {
        Ok(loaded) => loaded.plan,
        Err(faults) => {
            eprintln!("{faults}");
            return exit::BAD_PLAN;
        }
    };
    loop {
        match run_once(path, plan, until_end, &mut signals).await {
            End::Exit(code) => return code,
            End::Restart(changed) => plan = *changed,
        }
    }
}

enum End {
    Exit(u8),
    Restart(Box<Plan>),
}

async fn run_once(path: &Path, plan: Plan, until_end: bool, signals: &mut Signals) -> End {
    let telemetry = Telemetry::new();
    let stop_http = CancellationToken::new();
    let http = match &plan.http {
        None => None,
        Some(http) => match Server::bind(http.listen).await {
            Ok(server) => {
                info!(address = %server.address(), "http is served");
                let about = About { plan: plan.name.to_string() };
                Some(tokio::spawn(server.serve(about, telemetry.clone(), stop_http.clone())))
            }
            Err(error) => {
                error!(error = chain(&error), "http cannot be served");
                return End::Exit(exit::FAILED);
            }
        },
    };
    let drain = CancellationToken::new();
    let connector = Connector::new(telemetry, drain.clone());
    let mut running = pin!(connector.run(plan.clone(), until_end));
    let mut changed = None;
    // A drain alone does not make the next signal the second one: it may be that of a changed plan.
    let mut stopping = false;
    let result = loop {
        tokio::select! {
            result = &mut running => break result,
            event = signals.next() => match event {
                Event::Stop(name) if stopping => {
                    warn!(signal = name, "second signal: leaving at once; what is not committed will be read again");
                    // Not by way of the runtime, which would wait for tasks and let them report their end as faults.
                    std::process::exit(i32::from(exit::FAILED));
                }
                Event::Stop(name) => {
                    info!(signal = name, "stopping: what is read is being committed; a second signal leaves at once");
                    stopping = true;
                    changed = None;
                    drain.cancel();
                }
                Event::Reload => {
                    let new = reload(path, &plan);
                    if stopping {
                        info!("the process is stopping: the plan is not taken over");
                    } else if let Some(new) = new {
                        // Also while a former change is still draining: the newest plan wins.
                        info!("the plan has changed: draining, then starting with the new one");
                        changed = Some(Box::new(new));
                        drain.cancel();
                    }
                }
            },
        }
    };
    stop_http.cancel();
    if let Some(http) = http {
        let _ = http.await;
    }
    match (result, changed) {
        (Ok(_), Some(plan)) => End::Restart(plan),
        (Err(error @ Error::DrainIncomplete { .. }), Some(plan)) => {
            warn!(error = chain(&error), "restarting all the same");
            End::Restart(plan)
        }
        (Ok(Outcome::Ended), None) => {
            info!("all topics are copied up to their ends");
            End::Exit(exit::DONE)
        }
        (Ok(Outcome::Drained), None) => {
            info!("stopped: everything read is committed and its offsets are persisted");
            End::Exit(exit::DONE)
        }
        (Err(error), _) => {
            error!(error = chain(&error), "the connector failed");
            End::Exit(if error.class() == Class::BadPlan { exit::BAD_PLAN } else { exit::FAILED })
        }
    }
}

// The plan in the file, if it is valid and another one than `current`.
fn reload(path: &Path, current: &Plan) -> Option<Plan> {
    match plan::load_from_environment(path) {
        Ok(loaded) if loaded.plan == *current => {
            info!("the plan has not changed");
            None
        }
        Ok(loaded) => Some(loaded.plan),
        Err(faults) => {
            error!(%faults, "the plan has faults; the running one is kept");
            None
        }
    }
}

enum Event {
    Stop(&'static str),
    Reload,
}

struct Signals {
    terminate: Signal,
    interrupt: Signal,
    hangup: Signal,
}

impl Signals {
    fn new() -> std::io::Result<Signals> {
        Ok(Signals {
            terminate: signal(SignalKind::terminate())?,
            interrupt: signal(SignalKind::interrupt())?,
            hangup: signal(SignalKind::hangup())?,
        })
    }

    async fn next(&mut self) -> Event {
        tokio::select! {
            _ = self.terminate.recv() => Event::Stop("SIGTERM"),
            _ = self.interrupt.recv() => Event::Stop("SIGINT"),
            _ = self.hangup.recv() => Event::Reload,
        }
    }
}
