//! The layers of the code, and what only one of them may do.
//!
//! Works on tokens, so comments, texts and formatting do not matter. Modules for tests are exempt.

#![allow(clippy::unwrap_used)]

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::str::FromStr as _;

use proc_macro2::{Delimiter, TokenStream, TokenTree};

/// Modules by rank, lowest first. A module imports lower ranks and itself only.
const RANKS: &[&[&str]] = &[
    &["model", "error"],
    &["retry", "budget", "telemetry"],
    &["plan"],
    &["store", "registry", "kafka"],
    &["feed", "offset", "format", "layout"],
    &["producer"],
    &["commit"],
    &["runtime"],
    &["audit", "replay", "http"],
    &["cli"],
];

/// Names and the only modules that may use them.
const RESERVED: &[(&str, &[&str])] =
    // The client is hidden behind one module. Only the commit module may make blobs visible.
    &[("rdkafka", &["kafka"]), ("rdkafka_sys", &["kafka"]), ("commit_block_list", &["store", "commit"])];

/// Macros that say that something is not done.
const UNFINISHED: &[&str] = &["todo", "unimplemented"];

/// A source file, as the module that it is.
struct Module {
    /// Such as `["plan", "units"]`; empty for the root of the library.
    path: Vec<String>,
    /// Its tokens.
    tokens: TokenStream,
}

impl Module {
    // `path` below `src`, such as `plan/units.rs`.
    fn parse(path: &Path, text: &str) -> Module {
        let mut parts: Vec<String> =
            path.with_extension("").iter().map(|part| part.to_str().unwrap().to_owned()).collect();
        if matches!(parts.last().map(String::as_str), Some("mod" | "lib" | "main")) {
            parts.pop();
        }
        let tokens =
            TokenStream::from_str(text).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        Module { path: parts, tokens }
    }
}

/// What one pass over a module finds.
#[derive(Default)]
struct Findings {
    /// Top-level modules that are named.
    imports: BTreeSet<String>,
    /// Reserved names that are used.
    reserved: BTreeSet<&'static str>,
    /// Macros of [`UNFINISHED`] that are called.
    unfinished: BTreeSet<&'static str>,
    /// Modules in files of their own that are for tests.
    test_files: BTreeSet<Vec<String>>,
}

fn scan(path: &[String], tokens: TokenStream, found: &mut Findings) {
    let tokens: Vec<TokenTree> = tokens.into_iter().collect();
    let mut i = 0;
    while i < tokens.len() {
        if let Some((name, body, length)) = test_module(&tokens[i..]) {
            if body.is_none() {
                found.test_files.insert(child(path, &name));
            }
            i += length;
            continue;
        }
        if let Some(TokenTree::Group(body)) = tokens.get(i + 2)
            && ident(tokens.get(i)) == Some("mod".into())
            && let Some(name) = ident(tokens.get(i + 1))
        {
            scan(&child(path, &name), body.stream(), found);
            i += 3;
            continue;
        }
        match &tokens[i] {
            TokenTree::Group(group) => scan(path, group.stream(), found),
            TokenTree::Ident(word) => {
                let word = word.to_string();
                note_word(&word, tokens.get(i + 1), found);
                // A path that goes on from something else (`x::super`) does not exist; `::crate` neither.
                found.imports.extend(top_modules(path, &tokens[i..]));
            }
            _ => {}
        }
        i += 1;
    }
}

fn note_word(word: &str, next: Option<&TokenTree>, found: &mut Findings) {
    let called = matches!(next, Some(TokenTree::Group(group)) if group.delimiter() == Delimiter::Parenthesis);
    for (name, _) in RESERVED {
        // A client's name is enough; of a method, its call.
        if word == *name && (called || *name != "commit_block_list") {
            found.reserved.insert(name);
        }
    }
    for name in UNFINISHED {
        if word == *name && is_punct(next, '!') {
            found.unfinished.insert(name);
        }
    }
}

// `#[cfg(test)] mod name { ... }` or `#[cfg(test)] mod name;` (also with more attributes and `pub`): its name, its body,
// its length in tokens.
fn test_module(tokens: &[TokenTree]) -> Option<(String, Option<TokenStream>, usize)> {
    let mut at = 0;
    let mut for_tests = false;
    while is_punct(tokens.get(at), '#') {
        let Some(TokenTree::Group(attribute)) = tokens.get(at + 1) else { return None };
        for_tests |= attribute.stream().to_string().replace(' ', "") == "cfg(test)";
        at += 2;
    }
    if !for_tests {
        return None;
    }
    if ident(tokens.get(at)).as_deref() == Some("pub") {
        at += 1;
        at += usize::from(matches!(tokens.get(at), Some(TokenTree::Group(_))));
    }
    if ident(tokens.get(at)).as_deref() != Some("mod") {
        return None;
    }
    let name = ident(tokens.get(at + 1))?;
    let body = match tokens.get(at + 2)? {
        TokenTree::Group(body) => Some(body.stream()),
        _ => None,
    };
    Some((name, body, at + 3))
}

// The top-level modules that a path beginning here names: `crate::a::b`, `crate::{a, b::c}`, `super::super::a`.
fn top_modules(path: &[String], tokens: &[TokenTree]) -> Vec<String> {
    let mut at = 0;
    match ident(tokens.first()).as_deref() {
        // The binary names the library so.
        Some("crate" | "blobfeed") => {}
        Some("super") => {
            let mut depth = path.len();
            while ident(tokens.get(at)).as_deref() == Some("super") {
                let Some(above) = depth.checked_sub(1) else { return vec![] };
                depth = above;
                if depth == 0 {
                    break;
                }
                if !is_path_separator(&tokens[at + 1..]) {
                    return vec![];
                }
                at += 3;
            }
            if depth > 0 {
                return vec![];
            }
        }
        _ => return vec![],
    }
    if !is_path_separator(&tokens[at + 1..]) {
        return vec![];
    }
    match tokens.get(at + 3) {
        Some(TokenTree::Ident(name)) => vec![name.to_string()],
        Some(TokenTree::Group(group)) if group.delimiter() == Delimiter::Brace => first_words(group.stream()),
        // `crate::*` would import everything.
        Some(TokenTree::Punct(punct)) if punct.as_char() == '*' => vec!["*".to_owned()],
        _ => vec![],
    }
}

// The first word of each item in `{a, b::c, d::{e, f}}`.
fn first_words(list: TokenStream) -> Vec<String> {
    let mut words = Vec::new();
    let mut expects = true;
    for token in list {
        match token {
            TokenTree::Ident(word) if expects => words.push(word.to_string()),
            TokenTree::Punct(punct) if punct.as_char() == '*' && expects => words.push("*".to_owned()),
            TokenTree::Punct(punct) if punct.as_char() == ',' => {
                expects = true;
                continue;
            }
            _ => {}
        }
        expects = false;
    }
    words
}

fn child(path: &[String], name: &str) -> Vec<String> {
    path.iter().cloned().chain([name.to_owned()]).collect()
}

fn ident(token: Option<&TokenTree>) -> Option<String> {
    match token {
        Some(TokenTree::Ident(word)) => Some(word.to_string()),
        _ => None,
    }
}

fn is_punct(token: Option<&TokenTree>, wanted: char) -> bool {
    matches!(token, Some(TokenTree::Punct(punct)) if punct.as_char() == wanted)
}

fn is_path_separator(tokens: &[TokenTree]) -> bool {
    is_punct(tokens.first(), ':') && is_punct(tokens.get(1), ':')
}

fn rank(module: &str) -> Option<usize> {
    RANKS.iter().position(|rank| rank.contains(&module))
}

/// What is wrong with `files`, given by their paths below `src`.
fn violations(files: &BTreeMap<PathBuf, String>) -> Vec<String> {
    let modules: Vec<(&PathBuf, Module)> =
        files.iter().map(|(path, text)| (path, Module::parse(path, text))).collect();
    let scanned: Vec<(&PathBuf, &Module, Findings)> = modules
        .iter()
        .map(|(path, module)| {
            let mut found = Findings::default();
            scan(&module.path, module.tokens.clone(), &mut found);
            (*path, module, found)
        })
        .collect();
    let test_files: BTreeSet<&Vec<String>> =
        scanned.iter().flat_map(|(.., found)| &found.test_files).collect();
    let mut violations = Vec::new();
    for (path, module, found) in &scanned {
        let for_tests = (1..=module.path.len()).any(|n| test_files.contains(&module.path[..n].to_vec()));
        if !for_tests {
            violations.extend(
                faults_of(module, found).into_iter().map(|fault| format!("{}: {fault}", path.display())),
            );
        }
    }
    violations
}

fn faults_of(module: &Module, found: &Findings) -> Vec<String> {
    let mut faults: Vec<String> = found.unfinished.iter().map(|name| format!("calls {name}!")).collect();
    // The roots of the library and of the binary only put modules together.
    let own = module.path.first().map(String::as_str);
    for name in &found.reserved {
        let (_, users) = RESERVED.iter().find(|(reserved, _)| reserved == name).unwrap();
        if own.is_none_or(|own| !users.contains(&own)) {
            faults.push(format!("uses {name}, which is for {} only", users.join(", ")));
        }
    }
    let Some(own) = own else { return faults };
    let Some(own_rank) = rank(own) else {
        faults.push(format!("module {own} has no rank; add it to RANKS"));
        return faults;
    };
    for import in &found.imports {
        match rank(import) {
            _ if import == own => {}
            None => faults.push(format!("imports {import}, which has no rank")),
            Some(rank) if rank >= own_rank => faults.push(format!("{own} must not import {import}")),
            Some(_) => {}
        }
    }
    faults
}

fn sources() -> BTreeMap<PathBuf, String> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let mut files = BTreeMap::new();
    let mut open = vec![root.clone()];
    while let Some(folder) = open.pop() {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                open.push(path);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                let text = std::fs::read_to_string(&path).unwrap();
                files.insert(path.strip_prefix(&root).unwrap().to_owned(), text);
            }
        }
    }
    files
}

#[test]
fn lower_ranks_never_import_higher_ones() {
    let sources = sources();
    assert!(sources.len() > 20, "the sources are not where they should be");
    let violations = violations(&sources);
    assert!(violations.is_empty(), "\n{}", violations.join("\n"));
}

// The one file at `path` makes the violations `expected`.
fn check(path: &str, text: &str, expected: &[&str]) {
    let files = BTreeMap::from([(PathBuf::from(path), text.to_owned())]);
    let expected: Vec<String> = expected.iter().map(|fault| format!("{path}: {fault}")).collect();
    assert_eq!(violations(&files), expected, "{text}");
}

#[test]
fn imports_upwards_and_sideways_are_caught() {
    check("store/azure/sign.rs", "use crate::commit::Committer;", &["store must not import commit"]);
    check("store/mod.rs", "use crate::registry::Id;", &["store must not import registry"]);
    check("model/mod.rs", "use crate::error::Class;", &["model must not import error"]);
    check(
        "plan/mod.rs",
        "use crate::{model::Secret, store::{A, B}, http};",
        &["plan must not import http", "plan must not import store"],
    );
    check("plan/mod.rs", "fn f() -> crate::store::Error { todo() }", &["plan must not import store"]);
    check("plan/mod.rs", "fn f() { g!(x, crate::store::Error) }", &["plan must not import store"]);
    check("plan/mod.rs", "pub use super::runtime::Connector;", &["plan must not import runtime"]);
    check("plan/a/b.rs", "use super::super::super::cli;", &["plan must not import cli"]);
    check("plan/a.rs", "mod b { use super::super::super::cli; }", &["plan must not import cli"]);
    check("plan/mod.rs", "use crate::*;", &["imports *, which has no rank"]);
    check("plan/mod.rs", "use crate::colour::Red;", &["imports colour, which has no rank"]);
    check("colour.rs", "", &["module colour has no rank; add it to RANKS"]);
    // A test's attribute on something else exempts nothing behind it.
    check("plan/mod.rs", "#[cfg(test)] use x::y; use crate::cli::Args;", &["plan must not import cli"]);
    check("plan/mod.rs", "#[cfg(unix)] mod a { use crate::cli::Args; }", &["plan must not import cli"]);
}

#[test]
fn imports_downwards_and_within_are_allowed() {
    check("commit/mod.rs", "use crate::{store::Error, commit::x, model::*, plan::{self, Plan}};", &[]);
    check("plan/a/b.rs", "use super::super::c::D; use super::e; use self::f;", &[]);
    check("main.rs", "fn main() { blobfeed::cli::main() }", &[]);
    check("lib.rs", "pub mod cli; pub use crate::runtime::Connector;", &[]);
    check(
        "plan/mod.rs",
        "//! See [`crate::commit`].\n// use crate::cli;\nconst A: &str = \"crate::cli\";",
        &[],
    );
    check("plan/mod.rs", "#[cfg(test)] mod tests { use crate::cli::Args; fn f() { todo!() } }", &[]);
    check("plan/mod.rs", "#[cfg(test)]\n#[allow(x)]\npub(crate) mod tests { use crate::cli::Args; }", &[]);
}

#[test]
fn files_that_are_for_tests_are_exempt() {
    let files = BTreeMap::from([
        (PathBuf::from("plan/mod.rs"), "#[cfg(test)] mod tests; mod other;".to_owned()),
        (PathBuf::from("plan/tests.rs"), "use crate::cli::Args;".to_owned()),
        (PathBuf::from("plan/other.rs"), "use crate::cli::Args;".to_owned()),
    ]);
    assert_eq!(violations(&files), ["plan/other.rs: plan must not import cli"]);
}

#[test]
fn what_is_reserved_or_unfinished_is_caught() {
    check("feed/mod.rs", "use rdkafka::Message;", &["uses rdkafka, which is for kafka only"]);
    check("main.rs", "use rdkafka::Message;", &["uses rdkafka, which is for kafka only"]);
    check("kafka/raw.rs", "use rdkafka::Message;", &[]);
    let call = "async fn f(s: S) { s.commit_block_list(&b, &l).await }";
    check("producer/mod.rs", call, &["uses commit_block_list, which is for store, commit only"]);
    check("commit/finish.rs", call, &[]);
    check("store/azure.rs", call, &[]);
    check(
        "producer/mod.rs",
        "//! Never calls `commit_block_list(`.\nuse crate::store::commit_block_list_name;",
        &[],
    );
    check("model/mod.rs", "fn f() { todo!() }", &["calls todo!"]);
    check("model/mod.rs", "fn f() { if a { unimplemented!(\"x\") } }", &["calls unimplemented!"]);
    check("model/mod.rs", "fn todo() { todo() }", &[]);
}
