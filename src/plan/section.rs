//! Reading one table of a plan, key by key.
//!
//! Owns: missing keys, unknown keys, the paths of both.
//! Does not own: the values (see [`super::read`]).

use super::fault::{Problem, Report};
use super::keys::{Shape, remedy_for, shape_of};
use super::read::{Read, choice};
use super::tree::{Node, Table, Value, join};

/// A table from which each key is taken once; what is left at the end is unknown.
pub(super) struct Section<'r> {
    report: &'r Report,
    shape: &'static Shape,
    path: String,
    entries: Table,
}

impl<'r> Section<'r> {
    /// The section `name` for `variant`, standing at `path`.
    pub(super) fn new(
        report: &'r Report,
        (name, variant): (&str, &str),
        path: impl Into<String>,
        entries: Table,
    ) -> Section<'r> {
        Section { report, shape: shape_of(name, variant), path: path.into(), entries }
    }

    /// Where faults go.
    pub(super) fn report(&self) -> &'r Report {
        self.report
    }

    /// Where the section stands.
    pub(super) fn path(&self) -> &str {
        &self.path
    }

    /// The node at `key`, not read yet.
    pub(super) fn node(&mut self, key: &str) -> Option<Node> {
        self.take(key)
    }

    /// Where `key` stands, or would stand.
    pub(super) fn at(&self, key: &str) -> String {
        self.entries.get(key).map_or_else(|| join(&self.path, key), |node| node.path.clone())
    }

    /// Whether `key` is there.
    pub(super) fn has(&self, key: &str) -> bool {
        self.entries.contains_key(key)
    }

    /// The value of `key`; `None` when it is absent or a fault was reported.
    pub(super) fn optional<T>(&mut self, key: &str, read: impl FnOnce(&Node) -> Read<T>) -> Option<T> {
        let node = self.take(key)?;
        if node.value == Value::Broken {
            return None;
        }
        match read(&node) {
            Ok(value) => Some(value),
            Err(problem) => {
                self.report.fault(&node.path, problem);
                None
            }
        }
    }

    /// The value of `key`, or `default`.
    pub(super) fn or<T>(&mut self, key: &str, default: T, read: impl FnOnce(&Node) -> Read<T>) -> T {
        self.optional(key, read).unwrap_or(default)
    }

    /// The value of `key`; that it is absent is a fault, whose remedy is `remedy`.
    pub(super) fn required<T>(
        &mut self,
        key: &str,
        expected: &str,
        remedy: &str,
        read: impl FnOnce(&Node) -> Read<T>,
    ) -> Option<T> {
        if !self.has(key) {
            self.missing(key, expected, remedy);
        }
        self.optional(key, read)
    }

    /// Reports that `key` is absent.
    pub(super) fn missing(&self, key: &str, expected: &str, remedy: &str) {
        self.report.fault(&self.at(key), Problem::new("nothing", expected, remedy));
    }

    /// The table at `key` with its path; `None` when it is absent or no table.
    pub(super) fn table(&mut self, key: &str) -> Option<(String, Table)> {
        let path = self.at(key);
        let table = self.optional(key, |node| match &node.value {
            Value::Table(table) => Ok(table.clone()),
            // Its kind alone: a secret may stand where the table of a credential should.
            _ => Err(Problem::new(
                node.kind(),
                "a table",
                format!("Write a [{path}] section with keys in it."),
            )),
        })?;
        Some((path, table))
    }

    /// Reports what nobody has asked for.
    pub(super) fn finish(self) {
        for (key, node) in &self.entries {
            // It chose the shape.
            if key == "type" && !self.shape.variant.is_empty() {
                continue;
            }
            let known = self.shape.keys.join(", ");
            let problem =
                Problem::new("an unknown key", format!("one of {known}"), remedy_for(self.shape, key));
            self.report.fault(&node.path, problem);
        }
    }

    fn take(&mut self, key: &str) -> Option<Node> {
        debug_assert!(self.shape.keys.contains(&key), "{key} is read but not listed in {:?}", self.shape);
        self.entries.remove(key)
    }
}

/// The `type` of the section `name` at `path`, which decides what its other keys are: without it they cannot be judged.
pub(super) fn kind(
    name: &str,
    path: &str,
    table: &Table,
    (known, later): (&[(&'static str, &'static str)], &[&str]),
    report: &Report,
) -> Option<&'static str> {
    let words: Vec<&str> = known.iter().map(|(word, _)| *word).collect();
    let mut probe = Section::new(report, (name, words[0]), path, table.clone());
    probe.required(
        "type",
        &format!("one of {}", words.join(", ")),
        &format!("Add type = {:?}, or another one.", words[0]),
        choice(known, later),
    )
}
