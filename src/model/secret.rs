//! Values that must never be shown.

use zeroize::Zeroizing;

/// A key, password, token or SAS. It has no `Display` and no `Serialize`, and its `Debug` shows nothing of it.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(Zeroizing<String>);

impl Secret {
    /// Takes over `value`.
    pub fn new(value: impl Into<String>) -> Secret {
        Secret(Zeroizing::new(value.into()))
    }

    /// The value, for the one place that sends it.
    pub fn expose(&self) -> &str {
        &self.0
    }

    /// `text` with every occurrence of this secret replaced.
    pub fn cut_from(&self, text: &str) -> String {
        if self.0.is_empty() { text.to_owned() } else { text.replace(self.0.as_str(), "***") }
    }
}

impl std::fmt::Debug for Secret {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Secret(***)")
    }
}

/// `text` with what URLs in it may carry of secrets replaced: `user:password@`, and the values of `sig`, `se`-less
/// tokens and keys in query strings.
///
/// Works on any text that may contain URLs, such as the message of a foreign error.
pub fn redact_url(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find("://") {
        let (head, tail) = rest.split_at(at + 3);
        out.push_str(head);
        let end = tail.find(|c: char| c.is_whitespace() || "\"'<>`)".contains(c)).unwrap_or(tail.len());
        let (url, after) = tail.split_at(end);
        let authority_end = url.find(['/', '?', '#']).unwrap_or(url.len());
        let (authority, path) = url.split_at(authority_end);
        match authority.rfind('@') {
            Some(i) => {
                out.push_str("***@");
                out.push_str(&authority[i + 1..]);
            }
            None => out.push_str(authority),
        }
        out.push_str(&redact_query(path));
        rest = after;
    }
    out.push_str(&redact_query(rest));
    out
}

fn redact_query(text: &str) -> String {
    const SECRET_KEYS: [&str; 8] =
        ["sig", "code", "token", "key", "secret", "password", "access_token", "skoid"];
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    // A key starts after '?' or '&'; its value ends at the next separator.
    while let Some(at) = rest.find(['?', '&']) {
        let (head, tail) = rest.split_at(at + 1);
        out.push_str(head);
        rest = tail;
        let Some(eq) = rest.find('=') else { continue };
        if SECRET_KEYS.iter().any(|k| rest[..eq].eq_ignore_ascii_case(k)) {
            let value = &rest[eq + 1..];
            let end = value
                .find(|c: char| c == '&' || c.is_whitespace() || "\"'<>`".contains(c))
                .unwrap_or(value.len());
            out.push_str(&rest[..=eq]);
            out.push_str("***");
            rest = &value[end..];
        }
    }
    out.push_str(rest);
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn debug_shows_nothing() {
        assert_eq!(format!("{:?}", Secret::new("hunter2")), "Secret(***)");
    }

    #[test]
    fn urls_lose_their_secrets_and_nothing_else() {
        let check = |input: &str, expected: &str| assert_eq!(redact_url(input), expected);
        check("plain text, no url", "plain text, no url");
        check("at https://a/b?sv=1&sig=abc%3D&se=2 failed", "at https://a/b?sv=1&sig=***&se=2 failed");
        check("http://user:pw@host:1/x", "http://***@host:1/x");
        check("(https://h/c?SIG=x)", "(https://h/c?SIG=***)");
        check("two http://u@a http://b?token=t", "two http://***@a http://b?token=***");
        check("?sv=2020&sig=abc", "?sv=2020&sig=***");
    }
}
