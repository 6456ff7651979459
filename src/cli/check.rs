//! `blobfeed check`: all faults of a plan, or what it will do.

use std::path::Path;

use serde_json::json;

use super::args::Output;
use super::exit;
use crate::plan;

/// Prints the verdict on the plan.
pub(super) fn check(path: &Path, format: Output) -> u8 {
    match (plan::load_from_environment(path), format) {
        (Ok(loaded), Output::Text) => {
            print!("{}", loaded.summary());
            exit::DONE
        }
        (Ok(loaded), Output::Json) => {
            println!("{:#}", json!({ "ok": true, "summary": loaded.summary() }));
            exit::DONE
        }
        (Err(faults), Output::Text) => {
            println!("{faults}");
            exit::FAULTS
        }
        (Err(faults), Output::Json) => {
            println!("{:#}", json!({ "ok": false, "faults": faults }));
            exit::FAULTS
        }
    }
}
