//! Faults of a plan, and remarks about it.
//!
//! Owns: what is known of a fault, how faults are shown, where in the plan they are.
//! Does not own: what counts as one. Nothing here ever holds a secret: readers put in only what may be shown.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::fmt;

use serde::Serialize;

use crate::error::Class;

/// One fault of a plan.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Fault {
    /// The key, such as `feeds.edits.flush.interval`; empty for the file as a whole.
    pub path: String,
    /// The line of the file, where the syntax tells.
    pub line: Option<usize>,
    /// The variable that set the key.
    pub variable: Option<String>,
    /// What is there; never a secret.
    pub found: String,
    /// What should be there.
    pub expected: String,
    /// What to do; one or more sentences.
    pub remedy: String,
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.path.is_empty() { "the file" } else { &self.path })?;
        match (&self.variable, self.line) {
            (Some(variable), _) => write!(f, " (variable {variable})")?,
            (None, Some(line)) => write!(f, " (line {line})")?,
            (None, None) => {}
        }
        write!(f, ": found {}; expected {}. {}", self.found, self.expected, self.remedy)
    }
}

/// All faults of a plan.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Faults {
    /// The plan's file.
    pub plan: String,
    /// The faults; at least one.
    pub faults: Vec<Fault>,
}

impl Faults {
    /// What to do about it.
    pub fn class(&self) -> Class {
        Class::BadPlan
    }
}

impl fmt::Display for Faults {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let s = if self.faults.len() == 1 { "" } else { "s" };
        write!(f, "{} has {} fault{s}:", self.plan, self.faults.len())?;
        for (number, fault) in self.faults.iter().enumerate() {
            write!(f, "\n{:>3}. {fault}", number + 1)?;
        }
        Ok(())
    }
}

impl std::error::Error for Faults {}

/// A remark about a plan that works.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Note {
    /// The key it is about.
    pub path: String,
    /// The remark, a sentence or more.
    pub text: String,
}

impl fmt::Display for Note {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.path, self.text)
    }
}

/// What is wrong with a value, before it is known where the value stands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Problem {
    pub(super) found: String,
    pub(super) expected: String,
    pub(super) remedy: String,
}

impl Problem {
    pub(super) fn new(
        found: impl Into<String>,
        expected: impl Into<String>,
        remedy: impl Into<String>,
    ) -> Problem {
        Problem { found: found.into(), expected: expected.into(), remedy: remedy.into() }
    }
}

/// Where a key was set.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Origin {
    Line(usize),
    Variable(String),
}

/// Collects faults and notes while a plan is read.
#[derive(Debug, Default)]
pub(super) struct Report {
    origins: BTreeMap<String, Origin>,
    faults: RefCell<Vec<Fault>>,
    notes: RefCell<Vec<Note>>,
}

impl Report {
    pub(super) fn new(origins: BTreeMap<String, Origin>) -> Report {
        Report { origins, ..Report::default() }
    }

    /// Remembers that `path` was set by a variable.
    pub(super) fn set_by(&mut self, path: &str, variable: &str) {
        self.origins.insert(path.to_owned(), Origin::Variable(variable.to_owned()));
    }

    /// The variable that set `path`.
    pub(super) fn setter(&self, path: &str) -> Option<&str> {
        match self.origins.get(path) {
            Some(Origin::Variable(name)) => Some(name),
            _ => None,
        }
    }

    /// Notes a fault. One that was noted before is not repeated: values that feeds inherit are read once per feed.
    pub(super) fn fault(&self, path: &str, problem: Problem) {
        let (line, variable) = match self.origin(path) {
            Some(Origin::Line(line)) => (Some(*line), None),
            Some(Origin::Variable(name)) => (None, Some(name.clone())),
            None => (None, None),
        };
        let Problem { found, expected, remedy } = problem;
        let fault = Fault { path: path.to_owned(), line, variable, found, expected, remedy };
        let mut faults = self.faults.borrow_mut();
        if !faults.contains(&fault) {
            faults.push(fault);
        }
    }

    /// Notes a remark.
    pub(super) fn note(&self, path: &str, text: impl Into<String>) {
        let note = Note { path: path.to_owned(), text: text.into() };
        let mut notes = self.notes.borrow_mut();
        if !notes.contains(&note) {
            notes.push(note);
        }
    }

    pub(super) fn into_parts(self) -> (Vec<Fault>, Vec<Note>) {
        (self.faults.into_inner(), self.notes.into_inner())
    }

    // Where `path` stands; for a key that is missing, the line of the section that it is missing from.
    fn origin(&self, path: &str) -> Option<&Origin> {
        let mut at = path;
        loop {
            match self.origins.get(at) {
                // A variable that set another key of the section says nothing about this one.
                Some(Origin::Variable(_)) if at != path => return None,
                Some(origin) => return Some(origin),
                None => at = &at[..at.rfind(['.', '['])?],
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn problem() -> Problem {
        Problem::new("1", "2", "Write 2.")
    }

    #[test]
    fn a_fault_says_where_what_and_how() {
        let mut report = Report::new(BTreeMap::from([("flush".to_owned(), Origin::Line(4))]));
        report.set_by("name", "BLOBFEED__NAME");
        report.fault("flush.interval", problem());
        report.fault("name", problem());
        report.fault("name", problem());
        report.fault("", problem());
        let faults = Faults { plan: "p.toml".into(), faults: report.into_parts().0 };
        assert_eq!(
            faults.to_string(),
            "p.toml has 3 faults:\n  \
             1. flush.interval (line 4): found 1; expected 2. Write 2.\n  \
             2. name (variable BLOBFEED__NAME): found 1; expected 2. Write 2.\n  \
             3. the file: found 1; expected 2. Write 2."
        );
    }
}
