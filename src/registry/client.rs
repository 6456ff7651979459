//! Single GET requests to one of several equal registries.
//!
//! Owns: which registry is asked, what its answers mean, limits on bodies, credentials.
//! Does not own: repeating requests, caching.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use reqwest::header::{ACCEPT, LOCATION, RETRY_AFTER};
use reqwest::{Response, StatusCode};
use serde::Deserialize;
use url::{Host, Url};

use super::Error;
use crate::model::{Secret, redact_url};
use crate::plan;

/// Bytes of an answer.
const MAX_BODY: usize = 4 << 20;
/// Characters of a registry's message that are repeated.
const MAX_MESSAGE: usize = 200;
/// What may stand in a path segment as it is.
const SEGMENT: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'_').remove(b'.').remove(b'~');

/// What a registry answered.
pub(super) enum Answer {
    /// 200 and a schema.
    Sent(Sent),
    /// 200, and more bytes than are taken.
    TooLarge,
    /// It says, in its own words, that it has no such schema, subject or version.
    Absent,
}

/// A schema as the registry sends it.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Sent {
    pub(super) schema: String,
    pub(super) schema_type: Option<String>,
    pub(super) references: Option<Vec<SentReference>>,
}

/// Where a schema takes a type from.
#[derive(Deserialize)]
pub(super) struct SentReference {
    pub(super) name: String,
    pub(super) subject: String,
    pub(super) version: i64,
}

pub(super) struct Client {
    http: reqwest::Client,
    registries: Vec<Url>,
    basic: Option<(String, Secret)>,
    /// The registry that answered last is asked first.
    first: AtomicUsize,
}

impl Client {
    pub(super) fn new(plan: &plan::SchemaRegistry) -> Result<Client, Error> {
        let configuration = |reason: String| Error::Configuration { reason };
        let registries = plan.urls.iter().map(|url| base_url(url, plan.basic.is_some() && !plan.allow_http));
        let registries: Vec<Url> = registries.collect::<Result<_, _>>()?;
        if registries.is_empty() {
            return Err(configuration("it has no url".to_owned()));
        }
        let mut http = reqwest::Client::builder()
            .user_agent(concat!("blobfeed/", env!("CARGO_PKG_VERSION")))
            .timeout(plan.timeout)
            // A redirect would carry credentials to a host that the plan does not name.
            .redirect(reqwest::redirect::Policy::none());
        if registries.iter().all(is_loopback) {
            // What is meant for this machine must not leave it by a proxy of the environment.
            http = http.no_proxy();
        }
        let http = http.build().map_err(|error| configuration(crate::error::chain(&error.without_url())))?;
        Ok(Client { http, registries, basic: plan.basic.clone(), first: AtomicUsize::new(0) })
    }

    /// Asks for `path`, segments encoded already, until one registry gives an answer that counts.
    pub(super) async fn get(&self, path: &str) -> Result<Answer, Error> {
        let count = self.registries.len();
        let first = self.first.load(Ordering::Relaxed);
        let mut failure = None;
        for index in (0..count).map(|i| (first + i) % count) {
            match self.get_from(&self.registries[index], path).await {
                Ok(answer) => {
                    self.first.store(index, Ordering::Relaxed);
                    return Ok(answer);
                }
                // What the preferred registry says is more telling than what the last resort says.
                Err(error) => failure = failure.or(Some(error)),
            }
        }
        Err(failure.expect("there is at least one registry"))
    }

    async fn get_from(&self, base: &Url, path: &str) -> Result<Answer, Error> {
        let registry = base.as_str().trim_end_matches('/');
        let mut request = self
            .http
            .get(format!("{registry}/{path}"))
            .header(ACCEPT, "application/vnd.schemaregistry.v1+json, application/json");
        if let Some((user, password)) = &self.basic {
            request = request.basic_auth(user, Some(password.expose()));
        }
        let response = request.send().await.map_err(|error| no_answer(registry, error))?;
        let status = response.status();
        if status == StatusCode::OK {
            let body = body(response).await.map_err(|error| no_answer(registry, error))?;
            let Some(body) = body else { return Ok(Answer::TooLarge) };
            // A page of something in between, or another service: no record may be called bad for it.
            return serde_json::from_slice(&body)
                .map(Answer::Sent)
                .map_err(|_| unavailable(registry, "its answer is not a schema".to_owned(), None));
        }
        if status.is_redirection() {
            let target = response.headers().get(LOCATION).and_then(|value| value.to_str().ok());
            let target = self.readable(target.unwrap_or("elsewhere"));
            let reason = format!("it redirects to {target}; name the final URL in the plan");
            return Err(unavailable(registry, reason, None));
        }
        let retry_after = retry_after(&response);
        let said = body(response).await.ok().flatten().unwrap_or_default();
        let said: Said = serde_json::from_slice(&said).unwrap_or_default();
        Err(match status.as_u16() {
            404 if matches!(said.error_code, 40401..=40403) => return Ok(Answer::Absent),
            // Not the registry's own words: a proxy without a backend says this too, and no record may be called bad
            // for it.
            404 => unavailable(registry, "it answers HTTP 404 and no registry's error code".to_owned(), None),
            status @ (401 | 403) => Error::Denied { registry: registry.to_owned(), status },
            status @ (408 | 429 | 500..) => {
                let message = self.readable(&said.message);
                unavailable(registry, format!("HTTP {status} {message}").trim_end().to_owned(), retry_after)
            }
            status => {
                let message = self.readable(&said.message);
                Error::Refused { registry: registry.to_owned(), status, message }
            }
        })
    }

    // What somebody else said, fit for a log. Secrets go first: a cut must not leave half of one.
    fn readable(&self, text: &str) -> String {
        let text = redact_url(text);
        let text = match &self.basic {
            Some((_, password)) => password.cut_from(&text),
            None => text,
        };
        text.chars().filter(|c| !c.is_control()).take(MAX_MESSAGE).collect()
    }
}

/// What a registry says beside its status.
#[derive(Deserialize, Default)]
#[serde(default)]
struct Said {
    error_code: u32,
    message: String,
}

/// `text` as one segment of a path; `None` where a URL cannot have it.
pub(super) fn segment(text: &str) -> Option<String> {
    // Also encoded, these would climb: URLs read `%2e%2e` as `..`.
    if matches!(text, "" | "." | "..") {
        return None;
    }
    Some(utf8_percent_encode(text, SEGMENT).to_string())
}

// `secret` asks that a URL over the network is encrypted.
fn base_url(text: &str, secret: bool) -> Result<Url, Error> {
    let fault = |reason: String| Err(Error::Configuration { reason });
    let url = match Url::parse(text.trim()) {
        Ok(url) => url,
        Err(error) => return fault(format!("its url cannot be read: {error}")),
    };
    if !url.username().is_empty() || url.password().is_some() {
        return fault("its url contains a user or password; use username and password instead".to_owned());
    }
    if !matches!(url.scheme(), "http" | "https") || url.query().is_some() || url.fragment().is_some() {
        return fault("its url must be http or https, without query and fragment".to_owned());
    }
    if secret && url.scheme() == "http" && !is_loopback(&url) {
        return fault(format!(
            "a password would be sent in the clear to {url}; use https, or allow_http = true"
        ));
    }
    Ok(url)
}

fn is_loopback(url: &Url) -> bool {
    match url.host() {
        Some(Host::Domain(name)) => name == "localhost",
        Some(Host::Ipv4(address)) => address.is_loopback(),
        Some(Host::Ipv6(address)) => address.is_loopback(),
        None => false,
    }
}

// `None` when there are more bytes than are taken.
async fn body(mut response: Response) -> Result<Option<Vec<u8>>, reqwest::Error> {
    let mut body = Vec::new();
    while let Some(chunk) = response.chunk().await? {
        if body.len() + chunk.len() > MAX_BODY {
            return Ok(None);
        }
        body.extend_from_slice(&chunk);
    }
    Ok(Some(body))
}

fn retry_after(response: &Response) -> Option<Duration> {
    let seconds = response.headers().get(RETRY_AFTER)?.to_str().ok()?.trim().parse().ok()?;
    Some(Duration::from_secs(seconds))
}

fn no_answer(registry: &str, error: reqwest::Error) -> Error {
    let reason = if error.is_timeout() { "no answer in time" } else { "no answer" };
    Error::Unavailable {
        registry: registry.to_owned(),
        reason: reason.to_owned(),
        retry_after: None,
        source: Some(Arc::new(error.without_url())),
    }
}

fn unavailable(registry: &str, reason: String, retry_after: Option<Duration>) -> Error {
    Error::Unavailable { registry: registry.to_owned(), reason, retry_after, source: None }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_that_would_betray_credentials_are_refused() {
        let check = |url: &str, credentials: bool, expected: Result<(), &str>| {
            let answer = base_url(url, credentials).map(|_| ()).map_err(|error| error.to_string());
            match expected {
                Ok(()) => assert_eq!(answer, Ok(()), "{url}"),
                Err(part) => assert!(answer.as_ref().is_err_and(|m| m.contains(part)), "{url}: {answer:?}"),
            }
        };
        check("https://registry.example/base/", true, Ok(()));
        check("http://registry.example", false, Ok(()));
        check("http://registry.example", true, Err("in the clear"));
        check("http://localhost.example", true, Err("in the clear"));
        check("http://127.0.0.1.example", true, Err("in the clear"));
        check("http://localhost:8081", true, Ok(()));
        check("http://127.9.9.9:8081", true, Ok(()));
        check("http://[::1]:8081", true, Ok(()));
        check("https://user:hunter2@registry.example", false, Err("user or password"));
        check("https://user@registry.example", false, Err("user or password"));
        check("ftp://registry.example", false, Err("http or https"));
        check("https://registry.example/?a=b", false, Err("http or https"));
        check("registry.example", false, Err("cannot be read"));
        let message = base_url("https://user:hunter2@registry.example", true).unwrap_err().to_string();
        assert!(!message.contains("hunter2"));
    }

    #[test]
    fn segments_cannot_climb_or_split() {
        let check = |text: &str, expected: Option<&str>| assert_eq!(segment(text).as_deref(), expected);
        check("a/b c", Some("a%2Fb%20c"));
        check("orders-value_1.x~", Some("orders-value_1.x~"));
        check("a?b#c%2F+ä", Some("a%3Fb%23c%252F%2B%C3%A4"));
        check("...", Some("..."));
        check("..", None);
        check(".", None);
        check("", None);
    }
}
