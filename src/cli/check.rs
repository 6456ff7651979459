//! `blobfeed check`: all faults of a plan, or what it will do.

use std::path::Path;

use serde_json::json;

use super::args::Output;
use super::exit;
use crate::{kafka, plan};

/// Prints the verdict on the plan.
pub(super) fn check(path: &Path, format: Output) -> u8 {
    let loaded = match plan::load_from_environment(path) {
        Ok(loaded) => loaded,
        Err(faults) => {
            match format {
                Output::Text => println!("{faults}"),
                Output::Json => println!("{:#}", json!({ "ok": false, "faults": faults })),
            }
            return exit::FAULTS;
        }
    };
    // Which properties there are, only the client knows.
    if let Err(error) = kafka::check_properties(&loaded.plan.kafka) {
        match format {
            Output::Text => println!("{}: kafka.properties: {error}", path.display()),
            Output::Json => {
                let fault = json!({ "path": "kafka.properties", "found": error.to_string() });
                println!("{:#}", json!({ "ok": false, "faults": [fault] }));
            }
        }
        return exit::FAULTS;
    }
    match format {
        Output::Text => print!("{}", loaded.summary()),
        Output::Json => println!("{:#}", json!({ "ok": true, "summary": loaded.summary() })),
    }
    exit::DONE
}
