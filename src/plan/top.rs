//! The top of a plan.
//!
//! Owns: the order in which sections are read; `name`, `[memory]`, `[http]`, `[deadlines]`; what holds between sections.
//! Does not own: the other sections.

use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;

use super::fault::{Problem, Report};
use super::feeds::{Defaults, feeds};
use super::kafka::{kafka, max_poll_interval, schema_registry};
use super::memory::{largest_block, minimum};
use super::names::{named, own_name};
use super::read::{Read, duration, size};
use super::section::Section;
use super::storage::{offset_storage, store};
use super::tree::{Node, Table, Value};
use super::types::{Deadlines, Feed, Http, Kafka, Memory, Plan};
use super::units::{show_duration, show_size};

const MIB: u64 = 1 << 20;

/// Kubernetes kills a pod so long after it was told to stop, unless told otherwise.
const USUAL_GRACE: Duration = Duration::from_secs(30);

/// Reads the whole plan. `None` only with at least one fault reported; a plan with faults may come out all the same.
pub(super) fn plan(root: Table, folder: &Path, report: &Report) -> Option<Plan> {
    let mut root = Section::new(report, ("", ""), "", root);
    let name = root.required(
        "name",
        "the plan's name",
        "Add name = \"...\" at the top: it becomes part of the group id and of offset keys.",
        named("1 to 64 letters, digits, '.', '_', '-'", own_name),
    );
    let kafka = need(&mut root, "kafka", "where records come from").and_then(|(path, table)| {
        let section = Section::new(report, ("kafka", ""), path, table);
        kafka(section, name.as_deref().unwrap_or_default())
    });
    let registry =
        need(&mut root, "schema_registry", "where schemas come from, as input = \"avro\" needs them")
            .and_then(|(path, table)| {
                schema_registry(Section::new(report, ("schema_registry", ""), path, table))
            });
    let store = need(&mut root, "store", "where blobs go")
        .and_then(|(path, table)| store(&path, table, folder, report));
    let offset_storage = need(&mut root, "offset_storage", "where offsets are persisted")
        .and_then(|(path, table)| offset_storage(&path, table, folder, report));
    let defaults = Defaults::take(&mut root);
    let (path, table) = root.table("memory").unwrap_or(("memory".to_owned(), Table::new()));
    let (memory_path, memory) = memory(Section::new(report, ("memory", ""), path, table));
    let (path, table) = root.table("http").unwrap_or(("http".to_owned(), Table::new()));
    let http = http(Section::new(report, ("http", ""), path, table));
    let (path, table) = root.table("deadlines").unwrap_or(("deadlines".to_owned(), Table::new()));
    let deadlines = deadlines(Section::new(report, ("deadlines", ""), path, table), kafka.as_ref());
    let feeds = need(&mut root, "feeds", "one feed or more")
        .map(|(path, table)| feeds(&path, table, &defaults, report))
        .unwrap_or_default();
    root.finish();
    if let Some(kafka) = &kafka {
        demand_minimum(&memory, &memory_path, kafka, &feeds, report);
    }
    Some(Plan {
        name: name?.into(),
        kafka: kafka?,
        schema_registry: Some(registry?),
        store: store?,
        offset_storage: offset_storage?,
        memory,
        http,
        deadlines,
        feeds,
    })
}

fn need(root: &mut Section<'_>, key: &str, what: &str) -> Option<(String, Table)> {
    if !root.has(key) {
        root.missing(key, &format!("a section that says {what}"), &format!("Add a [{key}] section."));
    }
    root.table(key)
}

fn memory(mut section: Section<'_>) -> (String, Memory) {
    let path = section.at("budget");
    let why = "It holds all records between Kafka and the store.";
    let budget = section.or("budget", 512 * MIB, size(4 * MIB, 1 << 40, why));
    section.finish();
    (path, Memory { budget })
}

fn demand_minimum(memory: &Memory, path: &str, kafka: &Kafka, feeds: &[Feed], report: &Report) {
    let block = largest_block(feeds);
    let minimum = minimum(kafka.workers as u64, block);
    if memory.budget < minimum {
        report.fault(
            path,
            Problem::new(
                show_size(memory.budget),
                format!(
                    "at least {}, for {} worker(s) that fill one block of {} and send another one",
                    show_size(minimum),
                    kafka.workers,
                    show_size(block)
                ),
                "Raise it, or lower kafka.workers or flush.max_block_size.",
            ),
        );
    }
}

fn http(mut section: Section<'_>) -> Option<Http> {
    let path = section.at("listen");
    let usual = Some(SocketAddr::from(([127, 0, 0, 1], 9464)));
    let listen = section.or("listen", usual, listen);
    if let Some(address) = listen
        && !address.ip().is_loopback()
    {
        section.report().note(
            &path,
            format!("Whoever reaches {address} can read metrics and status; nothing can be changed there."),
        );
    }
    section.finish();
    listen.map(|listen| Http { listen })
}

fn listen(node: &Node) -> Read<Option<SocketAddr>> {
    match &node.value {
        Value::Text(text) if text.is_empty() => Ok(None),
        Value::Text(text) if text.parse::<SocketAddr>().is_ok() => Ok(text.parse().ok()),
        _ => Err(Problem::new(
            node.shown(),
            "an IP address with a port, or \"\" for none",
            "Write for example \"127.0.0.1:9464\"; host names are not looked up.",
        )),
    }
}

fn deadlines(mut section: Section<'_>, kafka: Option<&Kafka>) -> Deadlines {
    let (revoke_path, shutdown_path) = (section.at("revoke"), section.at("shutdown"));
    let bounds = (Duration::from_millis(100), Duration::from_secs(3_600));
    let why = "It must leave time for one block and one commit.";
    let revoke = section.or("revoke", Duration::from_secs(10), duration(bounds.0, bounds.1, why));
    let shutdown = section.or("shutdown", Duration::from_secs(25), duration(bounds.0, bounds.1, why));
    if let Some(limit) = kafka.map(max_poll_interval)
        && revoke >= limit
    {
        section.report().fault(
            &revoke_path,
            Problem::new(
                show_duration(revoke),
                format!("less than max.poll.interval.ms ({})", show_duration(limit)),
                "Lower it: a member that answers a revoke later is thrown out of the group.",
            ),
        );
    }
    if shutdown >= USUAL_GRACE {
        section.report().note(
            &shutdown_path,
            format!(
                "Kubernetes grants {} unless terminationGracePeriodSeconds says otherwise, Docker 10s.",
                show_duration(USUAL_GRACE)
            ),
        );
    }
    section.finish();
    Deadlines { revoke, shutdown }
}
