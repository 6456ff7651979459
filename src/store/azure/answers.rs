//! What the service's answers mean, each mapped once to an error of the port.
//!
//! Owns: the table of error codes; Retry-After; messages without credentials.
//! Does not own: what to do about an error; its class tells.
//!
//! Source: "Blob service error codes" and "Common REST API error codes" of the Azure Storage documentation.

use std::time::{Duration, SystemTime};

use azure_core::error::ErrorKind;
use azure_core::http::headers::{HeaderName, Headers};
use azure_core::time::parse_rfc7231;

use super::{authorize, hints};
use crate::error::chain;
use crate::model::{BlobRef, Secret, redact_url};
use crate::plan::AzureCredential;
use crate::store::{Condition, Error};

/// The only code that means that a blob is not there.
pub(super) const BLOB_NOT_FOUND: &str = "BlobNotFound";

/// What was asked, for the words of an error.
pub(super) struct Call<'a> {
    pub(super) operation: &'static str,
    pub(super) container: &'a str,
    blob: Option<&'a BlobRef>,
    condition: &'a Condition,
}

impl<'a> Call<'a> {
    pub(super) fn on_container(operation: &'static str, container: &'a str) -> Call<'a> {
        Call { operation, container, blob: None, condition: &Condition::None }
    }

    pub(super) fn on_blob(operation: &'static str, blob: &'a BlobRef, condition: &'a Condition) -> Call<'a> {
        Call { operation, container: &blob.container, blob: Some(blob), condition }
    }

    fn resource(&self) -> String {
        self.blob.map_or_else(|| self.container.to_owned(), ToString::to_string)
    }

    /// The answer did not come, or cannot be read. `why` is without credentials.
    pub(super) fn no_answer(&self, why: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Error {
        Error::Transport { operation: self.operation, resource: self.resource(), source: why.into() }
    }
}

/// Reads answers to requests made with one credential.
pub(super) struct Answers {
    account: String,
    /// Whether the credential is a SAS, which may lack any permission.
    sas: bool,
    secrets: Vec<Secret>,
}

impl Answers {
    pub(super) fn new(account: &str, credential: &AzureCredential) -> Answers {
        let mut secrets = Vec::new();
        let sas = match credential {
            AzureCredential::SharedKey(key) => {
                secrets.push(Secret::new(key.expose().trim()));
                false
            }
            AzureCredential::Sas(sas) => {
                let token = authorize::trim_sas(sas);
                secrets.push(Secret::new(token));
                // The signature alone too, as it is and decoded: services like to repeat what they were given.
                let raw = token.split('&').filter_map(|pair| pair.strip_prefix("sig=")).map(Secret::new);
                let decoded = url::form_urlencoded::parse(token.as_bytes())
                    .filter(|(name, _)| name == "sig")
                    .map(|(_, value)| Secret::new(value));
                secrets.extend(raw.chain(decoded));
                true
            }
        };
        Answers { account: account.to_owned(), sas, secrets }
    }

    /// `text` without anything of the credential, on one line.
    pub(super) fn scrub(&self, text: &str) -> String {
        let one_line = text.split_whitespace().collect::<Vec<_>>().join(" ");
        let cut = self.secrets.iter().fold(one_line, |text, secret| secret.cut_from(&text));
        redact_url(&cut).chars().take(500).collect()
    }

    /// Whether `error` may only say that the credential is a SAS without that permission.
    pub(super) fn may_lack_permission(&self, error: &Error) -> bool {
        match error {
            Error::Denied { code, .. } => self.sas && !hints::is_about_the_credential(code),
            _ => false,
        }
    }

    pub(super) fn map(&self, call: &Call<'_>, error: &azure_core::Error) -> Error {
        let (status, raw) = match error.kind() {
            ErrorKind::HttpResponse { status, raw_response, .. } => (u16::from(*status), raw_response),
            _ => return call.no_answer(self.scrub(&chain(error))),
        };
        let none = Headers::new();
        let headers = raw.as_ref().map_or(&none, |raw| raw.headers());
        let body = raw.as_ref().map(|raw| String::from_utf8_lossy(raw.body().as_ref()).into_owned());
        let body = body.unwrap_or_default();
        // An answer to HEAD has no body. The SDK's own code is the status's name when nobody gave one.
        let code = headers
            .get_optional_string(&HeaderName::from_static("x-ms-error-code"))
            .or_else(|| element(&body, "Code"))
            .unwrap_or_default();
        let code = self.scrub(&code);
        self.verdict(call, status, code, headers, &body)
    }

    fn verdict(&self, call: &Call<'_>, status: u16, code: String, headers: &Headers, body: &str) -> Error {
        let blob = call.resource();
        match (status, code.as_str()) {
            (404, "ContainerNotFound") => return container_not_found(call),
            // Some accounts say so of a container.
            (404, "ResourceNotFound") if call.blob.is_none() => return container_not_found(call),
            (409, "BlobAlreadyExists" | "ContainerAlreadyExists") => return Error::AlreadyExists { blob },
            (412, "ConditionNotMet" | "TargetConditionNotMet" | "") | (304, _) => match call.condition {
                Condition::Absent => return Error::AlreadyExists { blob },
                Condition::Matches(_) => return Error::ConditionNotMet { blob },
                Condition::None => {}
            },
            // If-Match on a blob that is not there.
            (404, BLOB_NOT_FOUND) if matches!(call.condition, Condition::Matches(_)) => {
                return Error::ConditionNotMet { blob };
            }
            (400, "InvalidBlockList") => return Error::UnknownBlock { blob },
            (400, "Md5Mismatch" | "Crc64Mismatch") => return Error::Checksum { blob },
            _ => {}
        }
        let (operation, resource) = (call.operation, blob);
        if matches!(status, 401 | 403) {
            let hint = self.hint(call, &code, headers, body);
            return Error::Denied { operation, resource, status, code, hint };
        }
        if passes(status, &code) {
            let retry_after = retry_after(headers, SystemTime::now());
            return Error::Unavailable { operation, resource, status, code, retry_after };
        }
        let message = element(body, "Message").map(|text| self.scrub(&text)).unwrap_or_default();
        let message = match hints::rule(&code) {
            Some(rule) if message.is_empty() => rule.to_owned(),
            Some(rule) => format!("{message} ({rule})"),
            None => message,
        };
        Error::Refused { operation, resource, status, code, message }
    }

    fn hint(&self, call: &Call<'_>, code: &str, headers: &Headers, body: &str) -> String {
        let mut hint = hints::denied(call.operation, code, &self.account, self.sas);
        let date = headers.get_optional_str(&HeaderName::from_static("date"));
        if let Some(date) = date.filter(|_| hints::is_about_the_credential(code) || code.is_empty()) {
            hint.push_str(&format!("; the server's clock says {}", self.scrub(date)));
        }
        // The only detail that is worth reading and holds no text that was signed.
        let detail = element(body, "AuthenticationErrorDetail");
        let readable = |text: &String| text.starts_with("Signature not valid in the specified time frame");
        if let Some(detail) = detail.filter(readable) {
            hint.push_str(&format!("; {}", self.scrub(&detail)));
        }
        hint
    }
}

fn container_not_found(call: &Call<'_>) -> Error {
    Error::ContainerNotFound { container: call.container.to_owned() }
}

/// Whether waiting may heal it.
fn passes(status: u16, code: &str) -> bool {
    match status {
        // Not a weakness of the moment, whatever the status says.
        _ if matches!(code, "FeatureNotSupported" | "APINotImplemented" | "NotImplemented") => false,
        408 | 429 | 500 | 502..=599 => true,
        // Not an answer of the service, which names every 404: a proxy, or an address that is being changed.
        404 => code.is_empty(),
        409 => matches!(
            code,
            "ContainerBeingDeleted"
                | "BlobBeingRehydrated"
                | "PendingCopyOperation"
                | "OperationTimedOut"
                | "AccountBeingCreated"
                | "ResourceBeingDeleted"
                | "LeaseIsBreakingAndCannotBeAcquired"
        ),
        // Somebody else holds a lease on the blob or the container; leases end.
        412 => code.starts_with("Lease"),
        _ => false,
    }
}

/// How long the service asks to wait: in milliseconds, in seconds, or until a date.
fn retry_after(headers: &Headers, now: SystemTime) -> Option<Duration> {
    let header = |name: &'static str| headers.get_optional_str(&HeaderName::from_static(name)).map(str::trim);
    for name in ["x-ms-retry-after-ms", "retry-after-ms"] {
        if let Some(millis) = header(name).and_then(|text| text.parse().ok()) {
            return Some(Duration::from_millis(millis));
        }
    }
    let text = header("retry-after")?;
    if let Ok(seconds) = text.parse() {
        return Some(Duration::from_secs(seconds));
    }
    let until = SystemTime::from(parse_rfc7231(text).ok()?);
    // By the server's clock if it tells: ours may differ.
    Some(until.duration_since(date(headers).unwrap_or(now)).unwrap_or_default())
}

/// The server's clock.
pub(super) fn date(headers: &Headers) -> Option<SystemTime> {
    let text = headers.get_optional_str(&HeaderName::from_static("date"))?;
    parse_rfc7231(text).ok().map(SystemTime::from)
}

/// The text of the first element of that name. The service's error bodies are flat and small, and what is not found
/// is no more than a message less.
fn element(body: &str, name: &str) -> Option<String> {
    let (_, rest) = body.split_once(&format!("<{name}>"))?;
    let (text, _) = rest.split_once(&format!("</{name}>"))?;
    let text = text.replace("&lt;", "<").replace("&gt;", ">").replace("&quot;", "\"").replace("&apos;", "'");
    Some(text.replace("&amp;", "&").trim().to_owned()).filter(|text| !text.is_empty())
}

#[cfg(test)]
mod tests;
