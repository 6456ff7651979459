//! `[feeds.<name>]`.
//!
//! Owns: what a feed inherits from the top of the plan, topics, whether names of blobs could meet.
//! Does not own: the sections that feeds and the top share (see [`super::parts`]).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::SystemTime;

use chrono::DateTime;

use super::fault::{Problem, Report};
use super::meet::Prefixes;
use super::names;
use super::parts::{Place, delivery, flush, format, target};
use super::read::{Read, texts};
use super::section::Section;
use super::tree::{Node, Table, Value, join};
use super::types::{Feed, Start, Target};
use crate::model::BlobName;

/// Sections that may stand at the top and in each feed.
const SHARED: [&str; 4] = ["flush", "delivery", "format", "target"];

/// Keys of `[target]`, which may stand directly in a feed.
const TARGET_KEYS: [&str; 5] = ["container", "stream", "partition", "suffix", "layout"];

/// The shared sections at the top of the plan.
pub(super) struct Defaults(BTreeMap<&'static str, (String, Table)>);

impl Defaults {
    /// Takes them out of `root` and checks them by themselves: a fault must show although no feed uses the value.
    pub(super) fn take(root: &mut Section<'_>) -> Defaults {
        let defaults = Defaults(
            SHARED.iter().filter_map(|name| root.table(name).map(|section| (*name, section))).collect(),
        );
        let section = |name| defaults.section(name, None, root.report());
        flush(section("flush"), false);
        delivery(section("delivery"));
        format(section("format"));
        target(section("target"));
        defaults
    }

    // The section `name` with `own` over it, key by key.
    fn section<'r>(
        &self,
        name: &'static str,
        own: Option<(String, Table)>,
        report: &'r Report,
    ) -> Section<'r> {
        let (top_path, mut merged) =
            self.0.get(name).cloned().unwrap_or_else(|| (name.to_owned(), Table::new()));
        let Some((path, own)) = own else {
            return Section::new(report, (name, ""), top_path, merged);
        };
        // A level belongs to the codec that it was written for.
        if own.contains_key("codec") {
            merged.remove("level");
        }
        merged.extend(own);
        Section::new(report, (name, ""), path, merged)
    }
}

/// Reads `[feeds]`; `path` is where it stands.
pub(super) fn feeds(path: &str, table: Table, defaults: &Defaults, report: &Report) -> Vec<Feed> {
    if table.is_empty() {
        report.fault(path, Problem::new("no feed", "one feed or more", "Add a [feeds.<name>] section."));
    }
    let mut owners = BTreeMap::new();
    let mut feeds = Vec::new();
    for (name, node) in table {
        if let Some(reason) = names::own_name(&name) {
            let problem = Problem::new(
                "a name that cannot be a feed's",
                "1 to 64 letters, digits, '.', '_', '-'",
                format!("As it is, {reason}."),
            );
            report.fault(&node.path, problem);
        }
        let Value::Table(entries) = node.value else {
            let problem =
                Problem::new(node.kind(), "a table", "Write a [feeds.<name>] section with keys in it.");
            report.fault(&node.path, problem);
            continue;
        };
        let section = Section::new(report, ("feeds.*", ""), node.path, entries);
        feeds.extend(feed(&name, section, defaults, &mut owners));
    }
    refuse_meeting(&feeds, path, report);
    feeds
}

fn feed(
    name: &str,
    mut section: Section<'_>,
    defaults: &Defaults,
    owners: &mut BTreeMap<String, String>,
) -> Option<Feed> {
    let report = section.report();
    let topics_path = section.at("topics");
    let topics = if section.has("topics_regex") && !section.has("topics") {
        // The unknown key says all that there is to say.
        None
    } else {
        section.required("topics", "a list of topics", "Add topics = [\"...\"].", topics_of)
    };
    if let Some(topics) = &topics {
        check_topics(name, topics, &topics_path, owners, report);
    }
    let start = section.or("start", Start::Earliest, start);
    let own = section.table("flush");
    let flush = flush(defaults.section("flush", own, report), true);
    let own = section.table("delivery");
    let delivery = delivery(defaults.section("delivery", own, report));
    let own = section.table("format");
    let format = format(defaults.section("format", own, report));
    let target = read_target(&mut section, defaults, topics.as_deref().unwrap_or_default());
    section.finish();
    Some(Feed {
        name: name.into(),
        topics: topics?.into_iter().map(Arc::from).collect(),
        start,
        target: target?,
        format,
        flush,
        delivery,
    })
}

// Keys of [target] stand directly in a feed, or in a table `target` of it.
fn read_target(section: &mut Section<'_>, defaults: &Defaults, topics: &[String]) -> Option<Target> {
    let report = section.report();
    let feed_path = section.path().to_owned();
    let (_, mut own) = section.table("target").unwrap_or_default();
    for key in TARGET_KEYS {
        let Some(node) = section.node(key) else { continue };
        if let Some(other) = own.get(key) {
            let found = format!("a second value beside {}", other.path);
            report.fault(&node.path, Problem::new(found, "one", "Remove one of them."));
        }
        own.insert(key.to_owned(), node);
    }
    let merged = defaults.section("target", Some((feed_path, own)), report);
    let container_given = merged.has("container");
    let (container_path, stream_path) = (merged.at("container"), merged.at("stream"));
    let Place { container, stream, partition, suffix } = target(merged);
    if !container_given {
        let problem = Problem::new("nothing", "the container that records go to", "Add container = \"...\".");
        report.fault(&container_path, problem);
    }
    let target = Target { container: container?.into(), stream, partition, suffix };
    for topic in topics {
        // The longest number of a partition makes the longest name.
        if let Err(error) = BlobName::new(target.example(topic, i32::MAX)) {
            let problem = Problem::new(
                format!("a name for topic {topic:?} that no blob may have: {}", error.reason),
                "a prefix that gives legal names",
                "Change `stream` or `partition`.",
            );
            report.fault(&stream_path, problem);
            return None;
        }
    }
    Some(target)
}

fn topics_of(node: &Node) -> Read<Vec<String>> {
    let topics = texts(node)?;
    for (i, topic) in topics.iter().enumerate() {
        if let Some(reason) = names::topic(topic) {
            // An item of a list knows itself whether it may be shown; a text with commas is shown as a whole.
            let shown = match &node.value {
                Value::List(items) => items[i].shown(),
                _ => node.shown(),
            };
            let expected = "topics' names: 1 to 249 letters, digits, '.', '_', '-'";
            return Err(Problem::new(shown, expected, format!("As it is, {reason}.")));
        }
    }
    Ok(topics)
}

fn start(node: &Node) -> Read<Start> {
    let expected = "\"earliest\", \"latest\", or a time such as \"2026-01-31T00:00:00Z\"";
    let refuse = |remedy: &str| Err(Problem::new(node.shown(), expected, remedy));
    let Value::Text(text) = &node.value else { return refuse("Write one of the three.") };
    match text.as_str() {
        "earliest" => return Ok(Start::Earliest),
        "latest" => return Ok(Start::Latest),
        _ => {}
    }
    match DateTime::parse_from_rfc3339(text) {
        // Kafka knows no time before 1970.
        Ok(time) if time.timestamp_millis() >= 0 => Ok(Start::At(SystemTime::from(time))),
        Ok(_) => refuse("Write a time from 1970 on."),
        Err(_) => refuse("A time needs date, time of day and zone (RFC 3339)."),
    }
}

fn check_topics(
    feed: &str,
    topics: &[String],
    path: &str,
    owners: &mut BTreeMap<String, String>,
    report: &Report,
) {
    let mut seen = BTreeSet::new();
    for topic in topics {
        if !seen.insert(topic) {
            let problem = Problem::new(format!("{topic:?} twice"), "each topic once", "Remove one of them.");
            report.fault(path, problem);
            continue;
        }
        if let Some(other) = owners.insert(topic.clone(), feed.to_owned()) {
            let problem = Problem::new(
                format!("{topic:?}, which feed {other:?} has too"),
                "a topic in one feed only",
                format!("Remove it from {feed:?} or from {other:?}; for two copies, run two plans."),
            );
            report.fault(path, problem);
        }
    }
}

// Names are told apart by prefix, time and suffix. Without the suffix, prefixes that meet are a fault.
fn refuse_meeting(feeds: &[Feed], feeds_path: &str, report: &Report) {
    let places: Vec<(&Feed, &Arc<str>, Prefixes)> = feeds
        .iter()
        .flat_map(|feed| {
            feed.topics.iter().map(move |topic| (feed, topic, Prefixes::of(&feed.target, topic)))
        })
        .collect();
    let mut told = BTreeSet::new();
    for (i, (feed, topic, prefixes)) in places.iter().enumerate() {
        let path = join(&join(feeds_path, &feed.name), "stream");
        for (other, other_topic, other_prefixes) in &places[..i] {
            let apart = feed.target.container != other.target.container || !prefixes.meet(other_prefixes);
            // One pair of topics stands for all of two feeds.
            if apart || !told.insert((feed.name.clone(), other.name.clone())) {
                continue;
            }
            let pair = format!(
                "topic {other_topic:?} of feed {:?} and topic {topic:?} of feed {:?}",
                other.name, feed.name
            );
            if feed.target.suffix || other.target.suffix {
                report
                    .note(&path, format!("Blobs of {pair} share a prefix; random suffixes tell them apart."));
            } else {
                let problem = Problem::new(
                    format!("names that could meet: {pair} share a prefix, and suffix = false"),
                    "names of its own for each topic",
                    "Put {topic} into `stream`, choose another `stream` or `container`, or set suffix = true.",
                );
                report.fault(&path, problem);
            }
        }
        if !prefixes.tell_partitions() && !feed.target.suffix {
            report.note(
                &join(&join(feeds_path, &feed.name), "partition"),
                format!(
                    "All partitions of topic {topic:?} share a prefix and suffix = false: a name that is taken moves on \
                     to the next free second."
                ),
            );
        }
    }
}
