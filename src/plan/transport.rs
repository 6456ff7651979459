//! URLs that something secret is sent to.
//!
//! Owns: which URLs a plan may have, and which of them may do without encryption.
//! Does not own: certificates.

use url::Url;

use super::fault::{Problem, Report};
use super::read::Read;

/// An http or https URL that carries no secret.
pub(super) fn url(text: &str, shown: &str, secret_remedy: &str) -> Read<Url> {
    const EXPECTED: &str = "a URL that starts with http:// or https://";
    let Ok(url) = Url::parse(text) else {
        return Err(Problem::new(shown, EXPECTED, "Write it as https://host:port/path."));
    };
    if !matches!(url.scheme(), "http" | "https") || url.host_str().is_none_or(str::is_empty) {
        return Err(Problem::new(shown, EXPECTED, "Write it as https://host:port/path."));
    }
    // A URL ends up in logs, errors and on the status page; secrets have keys of their own.
    if !url.username().is_empty() || url.password().is_some() {
        return Err(Problem::new("a URL with a user or a password in it", EXPECTED, secret_remedy));
    }
    if url.query().is_some() || url.fragment().is_some() {
        return Err(Problem::new("a URL with a query or a fragment", EXPECTED, secret_remedy));
    }
    Ok(url)
}

/// Whether what is sent to `url` stays on this machine.
pub(super) fn is_loopback(url: &Url) -> bool {
    match url.host() {
        Some(url::Host::Domain(name)) => name == "localhost" || name.ends_with(".localhost"),
        Some(url::Host::Ipv4(address)) => address.is_loopback(),
        Some(url::Host::Ipv6(address)) => address.is_loopback(),
        None => false,
    }
}

/// Reports a URL that would send a secret over an open network; `shown` is how faults may show it.
pub(super) fn demand_https(report: &Report, path: &str, url: &Url, shown: &str, allow_http: bool) {
    if url.scheme() != "http" || is_loopback(url) {
        return;
    }
    if allow_http {
        report.note(path, "Credentials and records cross the network unencrypted (allow_http = true).");
        return;
    }
    report.fault(
        path,
        Problem::new(
            shown,
            "https, as credentials are sent there",
            "Use https, or set allow_http = true in this section if the network is trusted.",
        ),
    );
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls() {
        let check = |text: &str, good: bool| assert_eq!(url(text, "x", "y").is_ok(), good, "{text}");
        check("http://localhost:8081", true);
        check("https://registry.example/apis/ccompat/v7", true);
        for text in
            ["localhost:8081", "ftp://h", "http://", "https://u@h", "https://h?sig=1", "https://h#x", ""]
        {
            check(text, false);
        }
    }

    #[test]
    fn loopback_is_this_machine_only() {
        let check =
            |text: &str, expected: bool| assert_eq!(is_loopback(&Url::parse(text).unwrap()), expected);
        check("http://127.0.0.1:10000/a", true);
        check("http://[::1]:1", true);
        check("http://localhost", true);
        check("http://LOCALHOST", true);
        check("http://azurite:10000", false);
        check("http://127.0.0.1.evil.example", false);
        check("http://10.0.0.1", false);
    }
}
