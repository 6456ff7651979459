//! `[store]` and `[offset_storage]`.
//!
//! Owns: their keys, defaults and bounds; that account and endpoint agree; that keys stay off open networks.
//! Does not own: talking to either.

use std::path::Path;
use std::time::Duration;

use base64::Engine as _;
use url::{Host, Url};

use super::fault::{Problem, Report};
use super::names::{account, named, node_path, zookeeper_connect};
use super::read::{Read, boolean, choice, duration, integer, is_loopback, path, secret, text, url};
use super::section::Section;
use super::tree::{Node, Table};
use super::types::{AzureCredential, AzureStore, Checksum, DirectoryStore, OffsetStorage, Store, Zookeeper};

use crate::model::Secret;

/// The account of Azure's emulators, whose key is public.
const EMULATOR: &str = "devstoreaccount1";

/// Reads `[store]`.
pub(super) fn store(path_of: &str, table: Table, folder: &Path, report: &Report) -> Option<Store> {
    let kinds = [("azure", "azure"), ("directory", "directory"), ("memory", "memory")];
    let kind = kind(path_of, &table, &kinds, &[], report)?;
    let mut section = Section::new(report, ("store", kind), path_of, table);
    section.optional("type", text);
    let store = match kind {
        "azure" => azure(&mut section).map(Store::Azure),
        "directory" => section
            .required("path", "the folder that holds the containers", "Add path = \"...\".", path(folder))
            .map(|path| Store::Directory(DirectoryStore { path })),
        _ => {
            report
                .note(&section.at("type"), "What is in memory is lost with the process; this is for tests.");
            Some(Store::Memory)
        }
    };
    section.finish();
    store
}

/// Reads `[offset_storage]`.
pub(super) fn offset_storage(
    path_of: &str,
    table: Table,
    folder: &Path,
    report: &Report,
) -> Option<OffsetStorage> {
    let kinds = [("zookeeper", "zookeeper"), ("file", "file"), ("memory", "memory")];
    let kind = kind(path_of, &table, &kinds, &["kafka", "blob"], report)?;
    let mut section = Section::new(report, ("offset_storage", kind), path_of, table);
    section.optional("type", text);
    let storage = match kind {
        "zookeeper" => zookeeper(&mut section).map(OffsetStorage::Zookeeper),
        "file" => section
            .required("path", "the file that holds the offsets", "Add path = \"...\".", path(folder))
            .map(|path| OffsetStorage::File { path }),
        _ => {
            report.note(
                &section.at("type"),
                "Offsets in memory are lost with the process: each start begins at the feed's `start`.",
            );
            Some(OffsetStorage::Memory)
        }
    };
    section.finish();
    storage
}

// The `type` of a section, which decides what its other keys are; without it they cannot be judged.
fn kind(
    path_of: &str,
    table: &Table,
    known: &[(&'static str, &'static str)],
    later: &[&str],
    report: &Report,
) -> Option<&'static str> {
    let words: Vec<&str> = known.iter().map(|(word, _)| *word).collect();
    let only_type: Table =
        table.iter().filter(|(key, _)| *key == "type").map(|(k, v)| (k.clone(), v.clone())).collect();
    let mut section = Section::new(report, (path_of, words[0]), path_of, only_type);
    section.required(
        "type",
        &format!("one of {}", words.join(", ")),
        &format!("Add type = {:?}, or another one.", words[0]),
        choice(known, later),
    )
}

fn azure(section: &mut Section<'_>) -> Option<AzureStore> {
    let endpoint_path = section.at("endpoint");
    let account_path = section.at("account");
    let had = (section.has("account"), section.has("endpoint"));
    let allow_http = section.or("allow_http", false, boolean);
    let name = section.optional("account", named("a name of 3 to 24 lower-case letters and digits", account));
    let endpoint = section.optional("endpoint", endpoint);
    let place = match (had, name, endpoint) {
        ((false, false), ..) => {
            section.missing("account", "the storage account's name", "Add account = \"...\".");
            None
        }
        // One of the two had a fault; what it should have been decides all the rest.
        ((true, _), None, _) | ((_, true), _, None) => None,
        (_, name, endpoint) => {
            let shown = endpoint.as_ref().map_or_else(String::new, |(_, shown)| shown.clone());
            match settle(name, endpoint) {
                Ok((name, url)) => {
                    transport(section.report(), &endpoint_path, &url, &shown, allow_http);
                    Some((name, url))
                }
                Err(problem) => {
                    section.report().fault(&endpoint_path, problem);
                    None
                }
            }
        }
    };
    if let Some((name, url)) = &place {
        if name == EMULATOR && !had.1 {
            let text = format!(
                "{EMULATOR} is the account of emulators; without `endpoint` it is looked for at {url}."
            );
            section.report().note(&account_path, text);
        }
    }
    let emulated = place.as_ref().is_some_and(|(name, _)| name == EMULATOR);
    if !section.has("credential") {
        section.missing(
            "credential",
            "a table with type shared_key or sas",
            "Add credential = { type = \"shared_key\", key = \"${env:AZURE_STORAGE_KEY}\" }.",
        );
    }
    let credential =
        section.table("credential").and_then(|(path, table)| credential(&path, table, section.report()));
    let checksum_path = section.at("checksum");
    let words = [("crc64", Checksum::Crc64), ("md5", Checksum::Md5), ("none", Checksum::None)];
    // Azurite does not know crc64: it answers 500, which looks like an outage.
    let usual = if emulated { Checksum::Md5 } else { Checksum::Crc64 };
    let checksum = section.or("checksum", usual, choice(&words, &[]));
    if emulated && checksum == Checksum::Crc64 {
        section
            .report()
            .note(&checksum_path, "Azurite answers crc64 with an error (HTTP 500); use md5 with it.");
    }
    let create_container = section.or("create_container", true, boolean);
    let bounds = (Duration::from_secs(1), Duration::from_secs(600));
    let request_timeout = section.or(
        "request_timeout",
        Duration::from_secs(60),
        duration(
            bounds.0,
            bounds.1,
            "It must be long enough for one block and short enough to notice a dead connection.",
        ),
    );
    let concurrency = section.or("concurrency", 16, integer(1, 256));
    let (account, endpoint) = place?;
    Some(AzureStore {
        account,
        endpoint,
        credential: credential?,
        checksum,
        create_container,
        request_timeout,
        concurrency: usize::try_from(concurrency).expect("256 at most"),
    })
}

// The URL, and how faults may show it.
fn endpoint(node: &Node) -> Read<(Url, String)> {
    let remedy =
        "Put a SAS into credential = { type = \"sas\", sas = \"...\" }, a key into type = \"shared_key\".";
    Ok((url(&text(node)?, &node.shown(), remedy)?, node.shown()))
}

// Account and endpoint, one derived from the other where it is absent.
fn settle(name: Option<String>, endpoint: Option<(Url, String)>) -> Read<(String, Url)> {
    let Some((mut url, shown)) = endpoint else {
        let name = name.expect("one of the two is there");
        let text = if name == EMULATOR {
            format!("http://127.0.0.1:10000/{EMULATOR}")
        } else {
            format!("https://{name}.blob.core.windows.net")
        };
        let url = Url::parse(&text).expect("letters and digits make a host");
        return Ok((name, url));
    };
    let path = url.path().trim_matches('/').to_owned();
    let implied = if path.is_empty() { account_of_host(&url) } else { Some(path.clone()) };
    url.set_path(&path);
    match (name, implied) {
        (_, Some(implied)) if account(&implied).is_some() => Err(Problem::new(
            shown,
            "an endpoint with the account's name as its only path, or as the first part of its host",
            "Leave the container out; it belongs into the feed.",
        )),
        (Some(name), Some(implied)) if name != implied => Err(Problem::new(
            format!("{shown}, which is of another account"),
            format!("one of account {name:?}, as `account` says"),
            "Make them agree: the account's name is part of each signature.",
        )),
        (_, Some(implied)) => Ok((implied, url)),
        (Some(name), None) if has_domain(&url) => Ok((name, url)),
        (Some(name), None) => Err(Problem::new(
            shown,
            "an endpoint that names the account",
            format!("Write it in path style: append /{name}."),
        )),
        (None, None) => Err(Problem::new(
            shown,
            "an endpoint that names the account",
            "Add account = \"...\", or append /ACCOUNT to the endpoint (path style).",
        )),
    }
}

// `<account>.blob.<suffix>`, also with a zone or `privatelink` in between.
fn account_of_host(url: &Url) -> Option<String> {
    let Some(Host::Domain(host)) = url.host() else { return None };
    let (first, rest) = host.split_once('.')?;
    rest.split('.').any(|label| label == "blob").then(|| first.to_owned())
}

// A host with a name of its own may stand for an account; an address or a machine's name does not.
fn has_domain(url: &Url) -> bool {
    matches!(url.host(), Some(Host::Domain(host)) if host.contains('.') && !is_loopback(url))
}

/// Reports what would send a secret over an open network.
pub(super) fn transport(report: &Report, path: &str, url: &Url, shown: &str, allow_http: bool) {
    if url.scheme() != "http" || is_loopback(url) {
        return;
    }
    if allow_http {
        report.note(path, "Credentials and records cross the network unencrypted (allow_http = true).");
    } else {
        report.fault(
            path,
            Problem::new(
                shown,
                "https, as credentials are sent there",
                "Use https, or set allow_http = true in this section if the network is trusted.",
            ),
        );
    }
}

fn credential(path_of: &str, table: Table, report: &Report) -> Option<AzureCredential> {
    const LATER: [&str; 6] = [
        "connection_string",
        "managed_identity",
        "workload_identity",
        "client_secret",
        "client_certificate",
        "azure_cli",
    ];
    let kinds = [("shared_key", "shared_key"), ("sas", "sas")];
    let mut probe = Section::new(report, ("store.credential", "sas"), path_of, table.clone());
    let kind =
        probe.required("type", "shared_key or sas", "Add type = \"shared_key\".", choice(&kinds, &LATER))?;
    let mut section = Section::new(report, ("store.credential", kind), path_of, table);
    section.optional("type", text);
    let credential = if kind == "sas" {
        section
            .required("sas", "a shared access signature", "Add sas = \"${env:AZURE_STORAGE_SAS}\".", sas)
            .map(AzureCredential::Sas)
    } else {
        section
            .required("key", "the account's key", "Add key = \"${env:AZURE_STORAGE_KEY}\".", account_key)
            .map(AzureCredential::SharedKey)
    };
    section.finish();
    credential
}

fn account_key(node: &Node) -> Read<Secret> {
    let key = secret(node)?;
    match base64::engine::general_purpose::STANDARD.decode(key.expose()) {
        Ok(bytes) if !bytes.is_empty() => Ok(key),
        _ => Err(Problem::new(
            "text that is no base64",
            "the account's key as Azure shows it",
            "Copy it again; it ends with one or two '='. A SAS has type = \"sas\".",
        )),
    }
}

fn sas(node: &Node) -> Read<Secret> {
    let sas = secret(node)?;
    let query = sas.expose().strip_prefix('?').unwrap_or(sas.expose());
    let signed = query.split('&').any(|pair| pair.starts_with("sig="));
    let clean = !query.contains("://") && !query.chars().any(|c| c.is_whitespace() || c.is_control());
    if signed && clean {
        return Ok(sas);
    }
    Err(Problem::new(
        "text that is no SAS",
        "a query such as sv=...&sig=...",
        "Write what stands behind the '?' of a SAS URL, and nothing else.",
    ))
}

fn zookeeper(section: &mut Section<'_>) -> Option<Zookeeper> {
    let connect = section.required(
        "connect",
        "host:port[,host:port...][/chroot]",
        "Add connect = \"localhost:2181\".",
        named("host:port[,host:port...][/chroot]", zookeeper_connect),
    );
    let root = section.or(
        "root",
        "/teknek/offset".to_owned(),
        named("the path of a node, such as /teknek/offset", node_path),
    );
    let bounds = (Duration::from_secs(1), Duration::from_secs(300));
    let session_timeout = section.or(
        "session_timeout",
        Duration::from_secs(30),
        duration(
            bounds.0,
            bounds.1,
            "Servers grant 2 to 20 of their ticks, 4s to 40s as they are set up usually.",
        ),
    );
    Some(Zookeeper { connect: connect?, root, session_timeout })
}
