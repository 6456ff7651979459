//! `${env:NAME}` and `${file:path}` in the texts of a plan.
//!
//! Owns: where secrets come from. A text that one was put into is marked, so that no fault shows it.
//! Does not own: which keys hold secrets.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::Read as _;
use std::path::Path;

use super::fault::{Problem, Report};
use super::tree::{Node, Table, Value};

/// A secret is a key or a certificate; who names a device or a log by mistake gets a fault and no full memory.
const MAX_FILE: u64 = 1 << 20;

/// Puts secrets into all texts below `root`. Relative paths of files start at `folder`.
pub(super) fn resolve(root: &mut Table, env: &BTreeMap<String, String>, folder: &Path, report: &Report) {
    for node in root.values_mut() {
        resolve_node(node, env, folder, report);
    }
}

fn resolve_node(node: &mut Node, env: &BTreeMap<String, String>, folder: &Path, report: &Report) {
    match &mut node.value {
        Value::Table(table) => resolve(table, env, folder, report),
        Value::List(nodes) => nodes.iter_mut().for_each(|node| resolve_node(node, env, folder, report)),
        Value::Text(text) => match expand(text, env, folder) {
            Ok(expanded) => {
                node.hidden |= expanded.secret;
                *text = expanded.text;
            }
            Err(problem) => {
                report.fault(&node.path, problem);
                node.value = Value::Broken;
            }
        },
        _ => {}
    }
}

struct Expanded {
    text: String,
    secret: bool,
}

fn expand(text: &str, env: &BTreeMap<String, String>, folder: &Path) -> Result<Expanded, Problem> {
    let mut out = Expanded { text: String::with_capacity(text.len()), secret: false };
    let mut rest = text;
    while let Some(at) = rest.find("${") {
        let (head, tail) = rest.split_at(at);
        if let Some(head) = head.strip_suffix('$') {
            // `$${` is a plain `${`.
            out.text.push_str(head);
            out.text.push_str("${");
            rest = &tail[2..];
            continue;
        }
        let Some(end) = tail.find('}') else {
            return Err(Problem::new(
                "`${` without `}`",
                CLOSED,
                "Add the `}`, or write `$${` for a plain `${`.",
            ));
        };
        out.text.push_str(head);
        out.text.push_str(&lookup(&tail[2..end], env, folder)?);
        out.secret = true;
        rest = &tail[end + 1..];
    }
    out.text.push_str(rest);
    Ok(out)
}

const CLOSED: &str = "`${env:NAME}` or `${file:path}`";

fn lookup(reference: &str, env: &BTreeMap<String, String>, folder: &Path) -> Result<String, Problem> {
    match reference.split_once(':') {
        Some(("env", name)) => env.get(name).cloned().ok_or_else(|| {
            Problem::new(
                format!("`${{env:{name}}}`, a variable that is not set"),
                "a variable of the process",
                format!("Set {name} where blobfeed is started."),
            )
        }),
        Some(("file", path)) => read(&folder.join(path)).map_err(|reason| {
            Problem::new(
                format!("`${{file:{path}}}`, which cannot be read: {reason}"),
                "a file with the secret as its text",
                "Check the path (a relative one starts at the plan's folder) and the permissions.",
            )
        }),
        // What stands between the braces is not repeated: it may be part of a password.
        _ => Err(Problem::new(
            "`${...}` of an unknown kind",
            CLOSED,
            "Correct it, or write `$${` for a plain `${`.",
        )),
    }
}

fn read(path: &Path) -> Result<String, String> {
    let file = File::open(path).map_err(|e| e.kind().to_string())?;
    let mut bytes = Vec::new();
    file.take(MAX_FILE + 1).read_to_end(&mut bytes).map_err(|e| e.kind().to_string())?;
    if bytes.len() as u64 > MAX_FILE {
        return Err("it is larger than 1 MiB".to_owned());
    }
    let mut text = String::from_utf8(bytes).map_err(|_| "it is not UTF-8".to_owned())?;
    // Editors and `echo` end a file with a newline that belongs to no secret.
    if text.ends_with('\n') {
        text.pop();
        if text.ends_with('\r') {
            text.pop();
        }
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(text: &str, expected: Result<(&str, bool), &str>) {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("key"), "from file\r\n").unwrap();
        std::fs::write(folder.path().join("two"), "one\n\n").unwrap();
        std::fs::write(folder.path().join("binary"), [0xff]).unwrap();
        let env = BTreeMap::from([("A".to_owned(), "${env:B}".to_owned()), ("B".to_owned(), "b".to_owned())]);
        match (expand(text, &env, folder.path()), expected) {
            (Ok(found), Ok(expected)) => assert_eq!((found.text.as_str(), found.secret), expected),
            (Err(found), Err(expected)) => assert!(found.found.contains(expected), "{found:?}"),
            (found, expected) => panic!("{text:?}: {expected:?}, found {:?}", found.map(|e| e.text)),
        }
    }

    #[test]
    fn references_are_replaced_once() {
        check("plain $ text }", Ok(("plain $ text }", false)));
        check("${env:B}", Ok(("b", true)));
        check("<${env:B}-${file:key}>", Ok(("<b-from file>", true)));
        check("${env:A}", Ok(("${env:B}", true)));
        check("${file:two}", Ok(("one\n", true)));
        check("$${env:B}", Ok(("${env:B}", false)));
        check("$$${env:B}", Ok(("$${env:B}", false)));
    }

    #[test]
    fn references_to_nothing_are_faults() {
        check("${env:C}", Err("`${env:C}`, a variable that is not set"));
        check("${env:}", Err("not set"));
        check("${file:absent}", Err("entity not found"));
        check("${file:binary}", Err("not UTF-8"));
        check("${file:/dev/zero}", Err("larger than 1 MiB"));
        check("${B}", Err("unknown kind"));
        check("${vault:x}", Err("unknown kind"));
        check("x${env:B", Err("without `}`"));
    }
}
