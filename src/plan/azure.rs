//! `[store] type = "azure"`.
//!
//! Owns: its keys, defaults and bounds; that account and endpoint agree; that keys stay off open networks.
//! Does not own: talking to Azure, what a credential may do.

use std::time::Duration;

use base64::Engine as _;
use url::{Host, Url};

use super::fault::Problem;
use super::names::{account, named};
use super::read::{Read, boolean, choice, duration, integer, secret, text};
use super::section::{Section, kind};
use super::transport::{demand_https, is_loopback, url};
use super::tree::Node;
use super::types::{AzureCredential, AzureStore, Checksum};
use crate::model::Secret;

/// The account of Azure's emulators, whose key is public.
const EMULATOR: &str = "devstoreaccount1";

/// Reads the section's keys, all but `type`.
pub(super) fn azure(section: &mut Section<'_>) -> Option<AzureStore> {
    let allow_http = section.or("allow_http", false, boolean);
    let place = place(section, allow_http);
    let emulated = place.as_ref().is_some_and(|(name, _)| name == EMULATOR);
    let credential = credential(section);
    let checksum = checksum(section, emulated);
    let create_container = section.or("create_container", true, boolean);
    let (min, max) = (Duration::from_secs(1), Duration::from_secs(600));
    let why = "It must be long enough for one block and short enough to notice a dead connection.";
    let request_timeout = section.or("request_timeout", Duration::from_secs(60), duration(min, max, why));
    let concurrency = section.or("concurrency", 16, integer(1, 256));
    let (account, endpoint) = place?;
    Some(AzureStore {
        account,
        endpoint,
        credential: credential?,
        allow_http,
        checksum,
        create_container,
        request_timeout,
        concurrency: usize::try_from(concurrency).expect("256 at most"),
    })
}

// The account and where it is.
fn place(section: &mut Section<'_>, allow_http: bool) -> Option<(String, Url)> {
    let report = section.report();
    let (account_path, endpoint_path) = (section.at("account"), section.at("endpoint"));
    let (has_account, has_endpoint) = (section.has("account"), section.has("endpoint"));
    let name = section.optional("account", named("a name of 3 to 24 lower-case letters and digits", account));
    let endpoint = section.optional("endpoint", endpoint);
    if has_endpoint {
        let (url, shown) = endpoint?;
        if has_account && name.is_none() {
            return None;
        }
        return match settle(name, url, &shown) {
            Ok((name, url)) => {
                demand_https(report, &endpoint_path, &url, &shown, allow_http);
                Some((name, url))
            }
            Err(problem) => {
                report.fault(&endpoint_path, problem);
                None
            }
        };
    }
    if !has_account {
        section.missing("account", "the storage account's name", "Add account = \"...\".");
    }
    let name = name?;
    let text = if name == EMULATOR {
        let text = format!("http://127.0.0.1:10000/{EMULATOR}");
        report.note(
            &account_path,
            format!("This is the account of emulators; without `endpoint` it is looked for at {text}."),
        );
        text
    } else {
        format!("https://{name}.blob.core.windows.net")
    };
    Some((name, Url::parse(&text).expect("lower-case letters and digits make a host")))
}

fn checksum(section: &mut Section<'_>, emulated: bool) -> Checksum {
    let path = section.at("checksum");
    let words = [("crc64", Checksum::Crc64), ("md5", Checksum::Md5), ("none", Checksum::None)];
    // Azurite does not know crc64: it answers 500, which looks like an outage.
    let usual = if emulated { Checksum::Md5 } else { Checksum::Crc64 };
    let checksum = section.or("checksum", usual, choice(&words, &[]));
    if emulated && checksum == Checksum::Crc64 {
        section.report().note(&path, "Azurite answers crc64 with an error (HTTP 500); use md5 with it.");
    }
    checksum
}

// The URL, and how faults may show it.
fn endpoint(node: &Node) -> Read<(Url, String)> {
    let remedy =
        "Put a SAS into credential = { type = \"sas\", sas = \"...\" }, a key into type = \"shared_key\".";
    Ok((url(&text(node)?, &node.shown(), remedy)?, node.shown()))
}

// The account that an endpoint belongs to; it must be the one that the plan names.
fn settle(name: Option<String>, mut url: Url, shown: &str) -> Read<(String, Url)> {
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
            "one of the account that `account` names",
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

fn credential(section: &mut Section<'_>) -> Option<AzureCredential> {
    const LATER: [&str; 6] = [
        "connection_string",
        "managed_identity",
        "workload_identity",
        "client_secret",
        "client_certificate",
        "azure_cli",
    ];
    if !section.has("credential") {
        section.missing(
            "credential",
            "a table with type shared_key or sas",
            "Add credential = { type = \"shared_key\", key = \"${env:AZURE_STORAGE_KEY}\" }.",
        );
    }
    let report = section.report();
    let (path, table) = section.table("credential")?;
    let kinds = [("shared_key", "shared_key"), ("sas", "sas")];
    let kind = kind("store.credential", &path, &table, (&kinds, &LATER), report)?;
    let mut section = Section::new(report, ("store.credential", kind), path, table);
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
