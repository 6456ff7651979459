//! Shared key and SAS.
//!
//! Owns: the signature of each request, or the token in its URL.
//! Does not own: what the service makes of it.
//!
//! Source: "Authorize with Shared Key" of the Azure Storage documentation, versions since 2015-02-21.

use std::fmt;
use std::fmt::Write;

use azure_core::http::headers::{HeaderName, HeaderValue};
use azure_core::http::{Request, Url};
use azure_core::time::{OffsetDateTime, to_rfc7231};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;
use zeroize::Zeroizing;

use crate::model::Secret;
use crate::plan::AzureCredential;
use crate::store::Error;

/// How requests show that they may be made. Its `Debug` shows nothing of it.
pub(super) enum Authorization {
    /// A signature made with the account's key.
    SharedKey {
        /// The account that the key is of.
        account: String,
        /// The key's bytes.
        key: Zeroizing<Vec<u8>>,
    },
    /// A token in the query, without its question mark.
    Sas(Secret),
}

impl fmt::Debug for Authorization {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Authorization::SharedKey { .. } => "SharedKey(***)",
            Authorization::Sas(_) => "Sas(***)",
        })
    }
}

impl Authorization {
    /// # Errors
    /// [`Error::Configuration`] when the credential cannot be one.
    pub(super) fn new(account: &str, credential: &AzureCredential) -> Result<Authorization, Error> {
        let refuse = |reason: &str| Error::Configuration { reason: reason.to_owned() };
        match credential {
            AzureCredential::SharedKey(key) => {
                if account.is_empty() {
                    return Err(refuse("a shared key needs the name of its account"));
                }
                // Files end with a newline that nobody sees.
                let key = STANDARD.decode(key.expose().trim()).map_err(|_| {
                    refuse("the shared key is not base64; copy the account key as it is shown")
                })?;
                if key.is_empty() {
                    return Err(refuse("the shared key is empty"));
                }
                Ok(Authorization::SharedKey { account: account.to_owned(), key: Zeroizing::new(key) })
            }
            AzureCredential::Sas(sas) => {
                let token = trim_sas(sas);
                if token.contains("://") {
                    return Err(refuse("the SAS is a URL; only the part behind its question mark is needed"));
                }
                let pairs = || url::form_urlencoded::parse(token.as_bytes());
                if !pairs().any(|(name, value)| name == "sig" && !value.is_empty()) {
                    return Err(refuse("the SAS has no signature (sig=...); copy it whole"));
                }
                if token.contains(|c: char| c.is_whitespace() || c.is_control() || c == '#') {
                    return Err(refuse("the SAS contains spaces or a #; copy it as it is shown"));
                }
                Ok(Authorization::Sas(Secret::new(token)))
            }
        }
    }

    pub(super) fn authorize(&self, request: &mut Request) -> azure_core::Result<()> {
        match self {
            Authorization::SharedKey { account, key } => {
                request.insert_header("x-ms-date", to_rfc7231(&OffsetDateTime::now_utc()));
                let signature = sign(key, &string_to_sign(account, request));
                request.insert_header("authorization", format!("SharedKey {account}:{signature}"));
            }
            Authorization::Sas(token) => append(request.url_mut(), token),
        }
        Ok(())
    }
}

/// A SAS as it is appended to a query.
pub(super) fn trim_sas(sas: &Secret) -> &str {
    sas.expose().trim().trim_start_matches(['?', '&'])
}

/// Appends the token as it is: encoding it once more could spell its signature differently.
fn append(url: &mut Url, token: &Secret) {
    let query = match url.query() {
        Some(query) if !query.is_empty() => Zeroizing::new(format!("{query}&{}", token.expose())),
        _ => Zeroizing::new(token.expose().to_owned()),
    };
    url.set_query(Some(&query));
}

fn sign(key: &[u8], text: &str) -> String {
    let mut mac = Hmac::<Sha256>::new_from_slice(key).expect("HMAC takes keys of any length");
    mac.update(text.as_bytes());
    STANDARD.encode(mac.finalize().into_bytes())
}

fn string_to_sign(account: &str, request: &Request) -> String {
    let header = |name: &'static str| {
        request.headers().get_optional_str(&HeaderName::from_static(name)).unwrap_or_default()
    };
    let body = request.body().len().filter(|len| *len > 0).map(|len| len.to_string()).unwrap_or_default();
    let length = match header("content-length") {
        "" => body.as_str(),
        // An empty body is signed as if its length were not given.
        "0" => "",
        length => length,
    };
    let mut text = format!(
        "{method}\n{encoding}\n{language}\n{length}\n{md5}\n{kind}\n\n{modified}\n{matches}\n{none}\n{unmodified}\n{range}\n",
        method = request.method().as_str(),
        encoding = header("content-encoding"),
        language = header("content-language"),
        md5 = header("content-md5"),
        kind = header("content-type"),
        modified = header("if-modified-since"),
        matches = header("if-match"),
        none = header("if-none-match"),
        unmodified = header("if-unmodified-since"),
        range = header("range"),
    );
    let mut own: Vec<(String, &HeaderValue)> = request
        .headers()
        .iter()
        .map(|(name, value)| (name.as_str().to_ascii_lowercase(), value))
        .filter(|(name, _)| name.starts_with("x-ms-"))
        .collect();
    own.sort_by(|(a, _), (b, _)| weights(a).cmp(weights(b)).then_with(|| a.cmp(b)));
    for (name, value) in own {
        let _ = writeln!(text, "{name}:{}", value.as_str().trim());
    }
    let _ = write!(text, "/{account}{}", request.url().path());
    let mut query: Vec<(String, String)> =
        request.url().query_pairs().map(|(name, value)| (name.to_lowercase(), value.into_owned())).collect();
    query.sort();
    let mut last: Option<&str> = None;
    for (name, value) in &query {
        match last {
            Some(previous) if previous == name => {
                let _ = write!(text, ",{value}");
            }
            _ => {
                let _ = write!(text, "\n{name}:{value}");
            }
        }
        last = Some(name);
    }
    text
}

/// The service does not sort header names by bytes: hyphens count only between names that are otherwise equal, and an
/// underscore comes before digits. Metadata named `a_b` and `a1` would be signed in the wrong order otherwise.
fn weights(name: &str) -> impl Iterator<Item = u8> + '_ {
    name.bytes().filter(|b| *b != b'-').map(|b| if b == b'_' { 1 } else { b })
}

#[cfg(test)]
mod tests {
    use azure_core::http::Method;

    use super::*;

    fn request(method: Method, url: &str, headers: &[(&'static str, &'static str)]) -> Request {
        let mut request = Request::new(Url::parse(url).unwrap(), method);
        for (name, value) in headers {
            request.insert_header(*name, *value);
        }
        request
    }

    fn refused(account: &str, credential: AzureCredential) -> String {
        match Authorization::new(account, &credential) {
            Err(error @ Error::Configuration { .. }) => error.to_string(),
            other => panic!("{other:?}"),
        }
    }

    /// The example of the documentation, "Constructing the signature string".
    #[test]
    fn text_to_sign_is_that_of_the_documentation() {
        let request = request(
            Method::Get,
            "https://myaccount.blob.core.windows.net/mycontainer?restype=container&comp=metadata&timeout=20",
            &[
                ("x-ms-version", "2015-02-21"),
                ("x-ms-date", "Fri, 26 Jun 2015 23:39:12 GMT"),
                ("accept", "*/*"),
            ],
        );
        let expected = "GET\n\n\n\n\n\n\n\n\n\n\n\nx-ms-date:Fri, 26 Jun 2015 23:39:12 GMT\nx-ms-version:2015-02-21\n\
             /myaccount/mycontainer\ncomp:metadata\nrestype:container\ntimeout:20";
        assert_eq!(string_to_sign("myaccount", &request), expected);
    }

    #[test]
    fn conditions_lengths_and_ranges_are_signed() {
        let url = "http://127.0.0.1:1/acc/c/a%2Fb%20%C3%BC+%25.avro?comp=block&blockid=YS8%2B&x=2&X=1";
        let headers = [
            ("content-length", "17"),
            ("content-md5", "bWQ1"),
            ("content-type", "application/xml"),
            ("if-none-match", "*"),
            ("range", "bytes=0-9"),
        ];
        let expected = "PUT\n\n\n17\nbWQ1\napplication/xml\n\n\n\n*\n\nbytes=0-9\n\
             /acc/acc/c/a%2Fb%20%C3%BC+%25.avro\nblockid:YS8+\ncomp:block\nx:1,2";
        assert_eq!(string_to_sign("acc", &request(Method::Put, url, &headers)), expected);
        let empty = request(Method::Put, "http://h/c", &[("content-length", "0")]);
        assert!(string_to_sign("acc", &empty).starts_with("PUT\n\n\n\n"));
        let mut body = request(Method::Put, "http://h/c", &[]);
        body.set_body("12345");
        assert!(string_to_sign("acc", &body).starts_with("PUT\n\n\n5\n"));
    }

    #[test]
    fn headers_are_signed_in_the_order_of_the_service() {
        let names = [
            "x-ms-meta-a1",
            "x-ms-meta-ab",
            "x-ms-meta-a_b",
            "x-ms-meta-a",
            "x-ms-blob-type",
            "x-ms-version",
        ];
        let request = request(Method::Put, "http://h/c", &names.map(|name| (name, "v")));
        let text = string_to_sign("acc", &request);
        let order: Vec<&str> = text
            .lines()
            .filter_map(|line| line.strip_suffix(":v"))
            .filter(|line| line.starts_with("x-ms"))
            .collect();
        assert_eq!(
            order,
            [
                "x-ms-blob-type",
                "x-ms-meta-a",
                "x-ms-meta-a_b",
                "x-ms-meta-a1",
                "x-ms-meta-ab",
                "x-ms-version"
            ]
        );
    }

    #[test]
    fn a_sas_is_appended_as_it_is() {
        let check = |sas: &str, url: &str, expected: &str| {
            let authorization = Authorization::new("acc", &AzureCredential::Sas(Secret::new(sas))).unwrap();
            let mut request = request(Method::Put, url, &[]);
            authorization.authorize(&mut request).unwrap();
            assert_eq!(request.url().as_str(), expected);
        };
        let token = "sv=2020&sp=racwl&sig=a%2Bb%2Fc%3D";
        for sas in [token.to_owned(), format!("?{token}"), format!(" ?{token}\n")] {
            check(&sas, "https://h/c/b", &format!("https://h/c/b?{token}"));
            check(
                &sas,
                "https://h/c/b?comp=block&blockid=YQ%3D%3D",
                &format!("https://h/c/b?comp=block&blockid=YQ%3D%3D&{token}"),
            );
        }
    }

    #[test]
    fn a_credential_that_cannot_be_one_is_refused_without_showing_it() {
        let key = |text: &str| AzureCredential::SharedKey(Secret::new(text));
        let sas = |text: &str| AzureCredential::Sas(Secret::new(text));
        let cases = [
            refused("acc", key("hunter2!")),
            refused("acc", key(" ")),
            refused("", key("aGVsbG8=")),
            refused("acc", sas("hunter2")),
            refused("acc", sas("https://hunter2/c?sv=1&sig=x")),
            refused("acc", sas("sv=1&sig=hunter2 and more")),
            refused("acc", sas("sv=1&sig=")),
        ];
        for message in cases {
            assert!(!message.contains("hunter2"), "{message}");
        }
        let shown = format!("{:?}", Authorization::new("acc", &sas("sig=hunter2")).unwrap());
        assert_eq!(shown, "Sas(***)");
    }
}
