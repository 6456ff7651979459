//! Plan files: their syntaxes, and the lines of their keys.
//!
//! Owns: from text to a tree of plain values; faults of syntax.
//! Does not own: what the values mean.

use std::collections::BTreeMap;
use std::path::Path;

use config::{File, FileFormat, Source as _, ValueKind};
use toml::de::{DeTable, DeValue};

use super::duplicates;
use super::fault::{Fault, Origin};
use super::tree::{Node, Table, Value, join};

/// The syntax of a plan.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Syntax {
    /// TOML 1.0; faults tell their lines.
    Toml,
    /// YAML 1.2, one document.
    Yaml,
    /// JSON.
    Json,
}

/// The syntax and the text of the file at `path`.
pub(super) fn read(path: &Path) -> Result<(Syntax, String), Vec<Fault>> {
    let extension = path.extension().and_then(|e| e.to_str()).map(str::to_ascii_lowercase);
    let syntax = match extension.as_deref() {
        Some("toml") => Syntax::Toml,
        Some("yaml" | "yml") => Syntax::Yaml,
        Some("json") => Syntax::Json,
        _ => {
            return Err(vec![whole_file(
                "a file name without a known extension".to_owned(),
                "a name that ends in .toml, .yaml, .yml or .json",
                "Rename the file.",
            )]);
        }
    };
    match std::fs::read_to_string(path) {
        Ok(text) => Ok((syntax, text)),
        Err(error) => Err(vec![whole_file(
            format!("a file that cannot be read ({})", error.kind()),
            "a plan in UTF-8",
            "Check the path and the permissions.",
        )]),
    }
}

fn whole_file(found: String, expected: &str, remedy: &str) -> Fault {
    Fault {
        path: String::new(),
        line: None,
        variable: None,
        found,
        expected: expected.to_owned(),
        remedy: remedy.to_owned(),
    }
}

/// The tree that `text` is, and where its keys stand.
pub(super) fn parse(text: &str, syntax: Syntax) -> Result<(Table, BTreeMap<String, Origin>), Vec<Fault>> {
    let mut origins = BTreeMap::new();
    let format = match syntax {
        Syntax::Toml => {
            toml_origins(text, &mut origins)?;
            FileFormat::Toml
        }
        Syntax::Yaml => FileFormat::Yaml,
        Syntax::Json => {
            // The parser behind `config` takes the last of two equal keys in silence; the others refuse them.
            if let Some(path) = duplicates::find(text) {
                let mut fault =
                    whole_file("a key that is there twice".to_owned(), "each key once", "Remove one.");
                fault.path = path;
                return Err(vec![fault]);
            }
            FileFormat::Json
        }
    };
    // An empty YAML document is no table to the parser; to us it is a plan that lacks everything.
    if text.trim().is_empty() {
        return Ok((Table::new(), origins));
    }
    match File::from_str(text, format).collect() {
        Ok(map) => Ok((table("", map), origins)),
        Err(error) => {
            let found = format!("text that is no {syntax:?} ({})", syntax_error(&error));
            Err(vec![whole_file(found, "a table of keys and values", "Mend the syntax.")])
        }
    }
}

// Parser messages may quote the value that they stumbled over; only those that cannot are passed on.
fn syntax_error(error: &config::ConfigError) -> String {
    match error {
        config::ConfigError::FileParse { cause, .. } if !cause.to_string().contains(['"', '`']) => {
            cause.to_string().lines().next().unwrap_or_default().to_owned()
        }
        _ => "the parser's message is left out, as it may quote a secret".to_owned(),
    }
}

fn table(path: &str, map: config::Map<String, config::Value>) -> Table {
    map.into_iter()
        .map(|(key, value)| {
            let node = node(join(path, &key), value);
            (key, node)
        })
        .collect()
}

fn node(path: String, value: config::Value) -> Node {
    let value = match value.kind {
        ValueKind::Nil => Value::Null,
        ValueKind::Boolean(value) => Value::Boolean(value),
        ValueKind::I64(value) => Value::Integer(value.into()),
        ValueKind::I128(value) => Value::Integer(value),
        ValueKind::U64(value) => Value::Integer(value.into()),
        ValueKind::U128(value) => Value::Integer(i128::try_from(value).unwrap_or(i128::MAX)),
        ValueKind::Float(value) => Value::Float(value),
        ValueKind::String(value) => Value::Text(value),
        ValueKind::Table(map) => Value::Table(table(&path, map)),
        ValueKind::Array(values) => Value::List(
            values.into_iter().enumerate().map(|(i, value)| node(format!("{path}[{i}]"), value)).collect(),
        ),
    };
    Node::new(path, value)
}

// The lines of all keys; the parser behind `config` does not tell them.
fn toml_origins(text: &str, origins: &mut BTreeMap<String, Origin>) -> Result<(), Vec<Fault>> {
    let (root, errors) = DeTable::parse_recoverable(text);
    if !errors.is_empty() {
        return Err(errors.iter().map(|error| toml_fault(text, error)).collect());
    }
    walk(text, "", root.get_ref(), origins);
    Ok(())
}

fn toml_fault(text: &str, error: &toml::de::Error) -> Fault {
    Fault {
        line: error.span().map(|span| line_of(text, span.start)),
        ..whole_file(
            format!("text that is no TOML ({})", error.message().trim()),
            "keys and values in TOML",
            "Mend the syntax there.",
        )
    }
}

fn walk(text: &str, path: &str, table: &DeTable<'_>, origins: &mut BTreeMap<String, Origin>) {
    for (key, value) in table {
        let path = join(path, key.get_ref());
        origins.insert(path.clone(), Origin::Line(line_of(text, key.span().start)));
        match value.get_ref() {
            DeValue::Table(inner) => walk(text, &path, inner, origins),
            DeValue::Array(values) => {
                for (i, value) in values.iter().enumerate() {
                    origins.insert(format!("{path}[{i}]"), Origin::Line(line_of(text, value.span().start)));
                }
            }
            _ => {}
        }
    }
}

fn line_of(text: &str, at: usize) -> usize {
    1 + text.as_bytes()[..at.min(text.len())].iter().filter(|b| **b == b'\n').count()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_three_syntaxes_say_the_same() {
        let toml = "a = 1\n[b.\"x.y\"]\nc = [true, \"t\"]\n";
        let yaml = "a: 1\nb:\n  x.y:\n    c: [true, t]\n";
        let json = r#"{"a": 1, "b": {"x.y": {"c": [true, "t"]}}}"#;
        let (expected, origins) = parse(toml, Syntax::Toml).unwrap();
        assert_eq!(parse(yaml, Syntax::Yaml).unwrap().0, expected);
        assert_eq!(parse(json, Syntax::Json).unwrap().0, expected);
        assert_eq!(origins["b.\"x.y\".c[1]"], Origin::Line(3));
    }

    #[test]
    fn faults_of_syntax_do_not_quote_the_file() {
        for (text, syntax) in [
            ("key = \"canary\n", Syntax::Toml),
            ("key = canary\n", Syntax::Toml),
            ("key: 'canary\n", Syntax::Yaml),
            ("\"canary\"", Syntax::Yaml),
            ("a: 1\na: canary\n", Syntax::Yaml),
            ("{\"key\": canary}", Syntax::Json),
            ("{\"a\": 1, \"a\": \"canary\"}", Syntax::Json),
            ("\"canary\"", Syntax::Json),
        ] {
            let faults = parse(text, syntax).unwrap_err();
            assert!(!format!("{faults:?}").contains("canary"), "{faults:?}");
        }
    }

    #[test]
    fn every_fault_of_toml_syntax_is_told_with_its_line() {
        let faults = parse("a = \nb = 1\nc = \n", Syntax::Toml).unwrap_err();
        assert_eq!(faults.iter().map(|f| f.line).collect::<Vec<_>>(), [Some(1), Some(3)]);
    }
}
