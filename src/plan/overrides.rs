//! Variables that override keys of the plan.
//!
//! Owns: from `BLOBFEED__FEEDS__EDITS__FLUSH__INTERVAL` to `feeds.edits.flush.interval`.
//! Does not own: the type of the value; it stays text until its reader sees it.
//!
//! Two underscores separate; case does not matter; what a variable's name cannot hold (`-`, `.`) is written `_`.

use std::collections::BTreeMap;

use super::fault::{Problem, Report};
use super::tree::{Node, Table, Value, join};

/// What the names of overriding variables begin with.
const PREFIX: &str = "BLOBFEED__";

/// Sets in `root` what the variables in `env` say.
pub(super) fn apply(root: &mut Table, env: &BTreeMap<String, String>, report: &mut Report) {
    for (name, text) in env {
        let Some(rest) = name.strip_prefix(PREFIX) else { continue };
        let segments: Vec<&str> = rest.split("__").collect();
        if segments.iter().any(|segment| segment.is_empty()) {
            report.set_by(name, name);
            report.fault(
                name,
                Problem::new(
                    "an empty part between underscores",
                    "names of keys, separated by two underscores",
                    "Rename or unset the variable.",
                ),
            );
            continue;
        }
        set(root, &segments, name, text, report);
    }
}

fn set(root: &mut Table, segments: &[&str], name: &str, text: &str, report: &mut Report) {
    let (last, parents) = segments.split_last().expect("split gives at least one segment");
    let mut table = root;
    let mut path = String::new();
    for segment in parents {
        let key = match find(table, &path, segment) {
            Ok(key) => key,
            Err(problem) => return refuse(report, name, &join(&path, segment), problem),
        };
        path = join(&path, &key);
        let node = table.entry(key).or_insert_with(|| Node::new(path.clone(), Value::Table(Table::new())));
        let kind = node.kind();
        let Value::Table(inner) = &mut node.value else {
            let problem = Problem::new(
                format!("a key below {path}, which is {kind}"),
                "a key in a table",
                "Correct the variable's name.",
            );
            return refuse(report, name, &join(&path, last), problem);
        };
        table = inner;
    }
    let key = match find(table, &path, last) {
        Ok(key) => key,
        Err(problem) => return refuse(report, name, &join(&path, last), problem),
    };
    let path = join(&path, &key);
    if let Some(other) = report.setter(&path) {
        let found = format!("two variables for one key, {other} and this one");
        return refuse(report, name, &path, Problem::new(found, "one", "Unset one of them."));
    }
    report.set_by(&path, name);
    table.insert(key, Node::new(path, Value::Text(text.to_owned())));
}

fn refuse(report: &mut Report, name: &str, path: &str, problem: Problem) {
    report.set_by(path, name);
    report.fault(path, problem);
}

// The key in `table` that `segment` means: one that is there, or else the key that it would be.
fn find(table: &Table, path: &str, segment: &str) -> Result<String, Problem> {
    let wanted = plain(segment);
    let there: Vec<&String> = table.keys().filter(|key| plain(key) == wanted).collect();
    match (there.as_slice(), path) {
        ([key], _) => Ok((*key).clone()),
        // A feed that exists in variables only is far more likely a name that was misspelled.
        ([], "feeds") => {
            let names = table.keys().cloned().collect::<Vec<_>>().join(", ");
            Err(Problem::new(
                "the name of a feed that the plan does not have",
                if names.is_empty() { "a feed of the plan".to_owned() } else { format!("one of {names}") },
                "Correct the variable's name, or add the feed to the plan.",
            ))
        }
        // Properties of librdkafka are spelled with points.
        ([], "kafka.properties") => Ok(wanted.replace('_', ".")),
        ([], _) => Ok(segment.to_ascii_lowercase()),
        (several, _) => {
            let names = several.iter().map(|s| s.as_str()).collect::<Vec<_>>().join(" and ");
            Err(Problem::new(
                format!("a name that means {names}"),
                "a name that means one key",
                "Set the value in the plan, with ${env:NAME} if need be.",
            ))
        }
    }
}

fn plain(key: &str) -> String {
    key.chars().map(|c| if c.is_ascii_alphanumeric() { c.to_ascii_lowercase() } else { '_' }).collect()
}

#[cfg(test)]
mod tests {
    use super::super::source::{Syntax, parse};
    use super::*;

    const PLAN: &str = r#"
        [feeds.Edits-Live]
        container = "c"
        [feeds.a_b]
        [feeds.a-b]
        [kafka.properties]
        "Weird_Name.x" = "1"
    "#;

    fn apply_to_plan(env: &[(&str, &str)]) -> (Table, Vec<String>) {
        let (mut root, origins) = parse(PLAN, Syntax::Toml).unwrap();
        let mut report = Report::new(origins);
        let env = env.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect();
        apply(&mut root, &env, &mut report);
        let faults = report.into_parts().0.into_iter().map(|f| f.to_string()).collect();
        (root, faults)
    }

    fn text_at(root: &Table, path: &[&str]) -> Option<String> {
        let (first, rest) = path.split_first()?;
        match &root.get(*first)?.value {
            Value::Text(text) if rest.is_empty() => Some(text.clone()),
            Value::Table(table) => text_at(table, rest),
            _ => None,
        }
    }

    #[test]
    fn variables_find_their_keys() {
        let check = |name: &str, path: &[&str]| {
            let (root, faults) = apply_to_plan(&[(name, "v")]);
            assert_eq!(faults, Vec::<String>::new());
            assert_eq!(text_at(&root, path).as_deref(), Some("v"), "{name}");
        };
        check("BLOBFEED__NAME", &["name"]);
        check("BLOBFEED__FLUSH__MAX_BLOB_SIZE", &["flush", "max_blob_size"]);
        check("BLOBFEED__FEEDS__EDITS_LIVE__FLUSH__INTERVAL", &["feeds", "Edits-Live", "flush", "interval"]);
        check("BLOBFEED__feeds__Edits-Live__Container", &["feeds", "Edits-Live", "container"]);
        check(
            "BLOBFEED__KAFKA__PROPERTIES__SECURITY_PROTOCOL",
            &["kafka", "properties", "security.protocol"],
        );
        check("BLOBFEED__KAFKA__PROPERTIES__WEIRD_NAME_X", &["kafka", "properties", "Weird_Name.x"]);
    }

    #[test]
    fn variables_that_mean_nothing_or_two_things_are_faults() {
        let check = |env: &[(&str, &str)], expected: &str| {
            let (_, faults) = apply_to_plan(env);
            assert_eq!(faults.len(), 1, "{faults:?}");
            assert!(faults[0].contains(expected), "{faults:?}");
        };
        check(&[("BLOBFEED__FEEDS__EDIT__CONTAINER", "v")], "expected one of Edits-Live, a-b, a_b");
        check(&[("BLOBFEED__FEEDS__A_B__CONTAINER", "v")], "means a-b and a_b");
        check(
            &[("BLOBFEED__FEEDS__EDITS_LIVE__CONTAINER__X", "v")],
            "below feeds.Edits-Live.container, which is text",
        );
        check(&[("BLOBFEED__FLUSH____INTERVAL", "v")], "an empty part");
        check(&[("BLOBFEED__NAME", "v"), ("BLOBFEED__name", "w")], "two variables for one key");
    }

    #[test]
    fn other_variables_are_left_alone() {
        let (root, faults) = apply_to_plan(&[("BLOBFEED_TEST_KAFKA", "v"), ("PATH", "v")]);
        assert_eq!((root, faults), (parse(PLAN, Syntax::Toml).unwrap().0, vec![]));
    }
}
