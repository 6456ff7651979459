//! `[kafka]` and `[schema_registry]`.
//!
//! Owns: their keys, defaults and bounds; which of librdkafka's properties are ours.
//! Does not own: what librdkafka's other properties mean; it says so itself when a client is made.

use std::collections::BTreeMap;
use std::time::Duration;

use super::fault::{Problem, Report};
use super::names::{is_address, named};
use super::read::{Read, boolean, duration, integer, secret, text, texts};
use super::section::Section;
use super::transport::{demand_https, url};
use super::tree::{Node, Table, Value, join};
use super::types::{Kafka, SchemaRegistry};
use crate::model::Secret;

/// librdkafka's own value where the plan has none.
const MAX_POLL_INTERVAL: Duration = Duration::from_secs(300);

/// Properties that blobfeed sets, and the key of the plan to use instead.
const OURS: &[(&str, &str)] = &[
    ("group.id", "Use kafka.group_id."),
    ("bootstrap.servers", "Use kafka.bootstrap_servers."),
    ("metadata.broker.list", "Use kafka.bootstrap_servers."),
    ("enable.auto.commit", "Remove it; kafka.commit_group_offsets says whether the broker learns offsets."),
    ("auto.commit.enable", "Remove it; kafka.commit_group_offsets says whether the broker learns offsets."),
    ("auto.commit.interval.ms", "Remove it; offsets follow commits, which flush.interval sets."),
    ("enable.auto.offset.store", "Remove it; offsets follow commits."),
    ("auto.offset.reset", "Use feeds.<name>.start."),
    ("enable.partition.eof", "Remove it; messages at the ends of partitions would be counted as records."),
    ("queued.max.messages.kbytes", "Use memory.budget; a share of it goes to fetching ahead."),
    ("allow.auto.create.topics", "Remove it; a topic that does not exist is an error."),
];

/// The longest time between two polls that the group allows.
pub(super) fn max_poll_interval(kafka: &Kafka) -> Duration {
    kafka
        .properties
        .get("max.poll.interval.ms")
        .and_then(|millis| millis.expose().parse().ok())
        .map_or(MAX_POLL_INTERVAL, Duration::from_millis)
}

/// Reads `[kafka]`; `name` is the plan's.
pub(super) fn kafka(mut section: Section<'_>, name: &str) -> Option<Kafka> {
    let bootstrap_servers = section.required(
        "bootstrap_servers",
        "host:port of one broker or more",
        "Add bootstrap_servers = \"localhost:9092\".",
        servers,
    );
    let group_id = section.or("group_id", format!("blobfeed-{name}"), text);
    let workers_path = section.at("workers");
    let workers = section.or("workers", 1, integer(1, 64));
    let commit_group_offsets = section.or("commit_group_offsets", true, boolean);
    let properties = match section.table("properties") {
        Some((path, table)) => {
            let mut found = BTreeMap::new();
            properties(&path, "", table, section.report(), &mut found);
            check_properties(&found, workers, &workers_path, section.report());
            found.into_iter().map(|(key, (_, value))| (key, value)).collect()
        }
        None => BTreeMap::new(),
    };
    section.finish();
    Some(Kafka {
        bootstrap_servers: bootstrap_servers?,
        group_id,
        workers: usize::try_from(workers).expect("64 at most"),
        commit_group_offsets,
        properties,
    })
}

fn servers(node: &Node) -> Read<String> {
    let servers = texts(node)?;
    let good = servers.iter().all(|server| {
        let address = server.split_once("://").map_or(server.as_str(), |(_, address)| address);
        is_address(address, false)
    });
    if good {
        Ok(servers.join(","))
    } else {
        Err(Problem::new(node.shown(), "host:port, several separated by commas", "Correct the address."))
    }
}

type Properties = BTreeMap<String, (String, Secret)>;

// In TOML and YAML a key with points in it, not quoted, is a table in a table; both spellings are one to us.
fn properties(path: &str, prefix: &str, table: Table, report: &Report, found: &mut Properties) {
    for (key, node) in table {
        let name = if prefix.is_empty() { key.clone() } else { format!("{prefix}.{key}") };
        let at = node.path.clone();
        if let Value::Table(inner) = node.value {
            properties(&join(path, &key), &name, inner, report, found);
            continue;
        }
        if let Some(problem) = refused(&name) {
            report.fault(&at, problem);
            continue;
        }
        match property(&node) {
            Ok(None) => {}
            Ok(Some(value)) => {
                if let Some((other, _)) = found.insert(name, (at.clone(), value)) {
                    let problem =
                        Problem::new(format!("the same property as {other}"), "one", "Remove one of them.");
                    report.fault(&at, problem);
                }
            }
            Err(problem) => report.fault(&at, problem),
        }
    }
}

fn refused(name: &str) -> Option<Problem> {
    if let Some((_, remedy)) = OURS.iter().find(|(ours, _)| *ours == name) {
        return Some(Problem::new("a property that blobfeed sets itself", "other properties only", *remedy));
    }
    let good = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || matches!(c, '.' | '_' | '-');
    if name.ends_with("_cb") || name == "opaque" || name == "default_topic_conf" {
        return Some(Problem::new("a callback", "properties that text can set", "Remove it."));
    }
    (name.is_empty() || !name.chars().all(good)).then(|| {
        Problem::new(
            "a name that no property of librdkafka has",
            "lower-case names with points, such as \"security.protocol\"",
            "Correct the name.",
        )
    })
}

// Any property may hold a secret (passwords, keys, JAAS lines), so none is ever shown.
fn property(node: &Node) -> Read<Option<Secret>> {
    match &node.value {
        Value::Broken => Ok(None),
        Value::Boolean(value) => Ok(Some(Secret::new(value.to_string()))),
        Value::Float(value) => Ok(Some(Secret::new(value.to_string()))),
        // Empty is a value to librdkafka.
        Value::Text(text) => Ok(Some(Secret::new(text.as_str()))),
        Value::Integer(_) => secret(node).map(Some),
        _ => Err(Problem::new(node.kind(), "text, a number, true or false", "Write the value in quotes.")),
    }
}

fn check_properties(found: &Properties, workers: u64, workers_path: &str, report: &Report) {
    let get = |name: &str| found.get(name).map(|(path, value)| (path.as_str(), value.expose()));
    if let Some((path, value)) = get("partition.assignment.strategy")
        && value != "cooperative-sticky"
    {
        report.fault(
            path,
            Problem::new(
                "another strategy",
                "\"cooperative-sticky\"",
                "Remove it: others take all partitions away in each rebalance, and with them open blobs.",
            ),
        );
    }
    if let Some((path, _)) = get("partition.assignment.strategy")
        && get("group.protocol").is_some_and(|(_, protocol)| protocol.eq_ignore_ascii_case("consumer"))
    {
        let problem =
            Problem::new("a strategy", "none", "Remove it: with group.protocol = consumer brokers assign.");
        report.fault(path, problem);
    }
    if let Some((path, value)) = get("max.poll.interval.ms")
        && !value.parse::<u64>().is_ok_and(|millis| (1..=86_400_000).contains(&millis))
    {
        let expected = "a whole number of milliseconds from 1 to 86400000";
        report.fault(path, Problem::new("another value", expected, "Correct it, or remove it (300000)."));
    }
    if let Some((path, _)) = get("group.instance.id")
        && workers > 1
    {
        report.fault(
            path,
            Problem::new(
                format!("one id for {workers} members"),
                "one id per member",
                format!("Remove it, or set {workers_path} = 1: members with one id throw each other out."),
            ),
        );
    }
    if let Some((path, value)) = get("enable.ssl.certificate.verification")
        && value == "false"
    {
        report.note(path, "The broker's certificate is not verified: anybody may pose as the broker.");
    }
    if let Some((path, value)) = get("security.protocol")
        && value.eq_ignore_ascii_case("sasl_plaintext")
    {
        report.note(
            path,
            "Credentials and records cross the network unencrypted unless the mechanism protects them.",
        );
    }
}

/// Reads `[schema_registry]`.
pub(super) fn schema_registry(mut section: Section<'_>) -> Option<SchemaRegistry> {
    const REMEDY: &str = "Put user and password into `username` and `password` of this section.";
    let report = section.report();
    let url_path = section.at("url");
    let urls =
        section.required("url", "the registry's URL", "Add url = \"http://localhost:8081\".", |node| {
            let urls =
                texts(node)?.iter().map(|one| url(one, &node.shown(), REMEDY)).collect::<Read<Vec<_>>>()?;
            Ok((urls, node.shown()))
        });
    let given = (section.has("username"), section.has("password"));
    let username = section.optional(
        "username",
        named("a user's name without ':'", |name| {
            // Basic authentication separates user and password by the first colon.
            name.contains(':').then_some("it has a ':'")
        }),
    );
    let password = section.optional("password", secret);
    match given {
        (true, false) => section.missing("password", "a password, as there is a username", "Add password."),
        (false, true) => section.missing("username", "a username, as there is a password", "Add username."),
        _ => {}
    }
    let allow_http = section.or("allow_http", false, boolean);
    if let Some((urls, shown)) = &urls
        && given != (false, false)
    {
        urls.iter().for_each(|url| demand_https(report, &url_path, url, shown, allow_http));
    }
    let bounds = (Duration::from_millis(100), Duration::from_secs(300));
    let why = "It must leave time for an answer; a partition waits as long as no schema comes.";
    let timeout = section.or("timeout", Duration::from_secs(10), duration(bounds.0, bounds.1, why));
    section.finish();
    let basic = match (username, password) {
        (Some(username), Some(password)) => Some((username, password)),
        _ => None,
    };
    // A trailing slash would become an empty segment before `/schemas`.
    let urls = urls?.0.iter().map(|url| url.as_str().trim_end_matches('/').to_owned()).collect();
    Some(SchemaRegistry { urls, basic, allow_http, timeout })
}
