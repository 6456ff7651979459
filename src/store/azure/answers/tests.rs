use azure_core::Bytes;
use azure_core::http::{RawResponse, StatusCode};

use super::*;
use crate::error::Class;
use crate::model::BlobName;

const KEY: &str = "Y2FuYXJ5LWtleQ==";

fn answers() -> Answers {
    Answers::new("acc", &AzureCredential::SharedKey(Secret::new(KEY)))
}

fn blob() -> BlobRef {
    BlobRef { container: "data".into(), name: BlobName::new("a/b").unwrap() }
}

fn response(status: u16, headers: &[(&'static str, &'static str)], body: &str) -> azure_core::Error {
    let mut map = Headers::new();
    for (name, value) in headers {
        map.insert(*name, *value);
    }
    let status = StatusCode::from(status);
    let raw = RawResponse::from_bytes(status, map, Bytes::copy_from_slice(body.as_bytes()));
    let kind = ErrorKind::HttpResponse { status, error_code: None, raw_response: Some(Box::new(raw)) };
    azure_core::Error::with_message(kind, "the SDK's words")
}

fn body(code: &str, message: &str) -> String {
    format!(
        r#"<?xml version="1.0" encoding="utf-8"?><Error><Code>{code}</Code><Message>{message}</Message></Error>"#
    )
}

#[test]
fn each_answer_has_one_meaning() {
    let blob = blob();
    let check = |condition: Condition, status: u16, code: &'static str, expected: &str| {
        let call = Call::on_blob("Put Block List", &blob, &condition);
        // As the answer to a HEAD has it, and as the answer to a PUT has it.
        let by_header = answers().map(&call, &response(status, &[("x-ms-error-code", code)], ""));
        assert_eq!(by_header.kind(), expected, "{status} {code} {condition:?}: {by_header:?}");
        if !code.is_empty() {
            let by_body = answers().map(&call, &response(status, &[], &body(code, "words")));
            assert_eq!(by_body.kind(), expected, "{status} {code} {condition:?}: {by_body:?}");
        }
    };
    let matches = || Condition::Matches("\"0x1\"".to_owned());
    check(Condition::Absent, 404, "ContainerNotFound", "container_not_found");
    check(Condition::Absent, 409, "BlobAlreadyExists", "already_exists");
    check(Condition::Absent, 412, "ConditionNotMet", "already_exists");
    check(matches(), 412, "ConditionNotMet", "condition_not_met");
    check(matches(), 412, "", "condition_not_met");
    check(matches(), 404, "BlobNotFound", "condition_not_met");
    check(Condition::None, 412, "LeaseIdMissing", "unavailable");
    check(matches(), 412, "LeaseIdMissing", "unavailable");
    check(Condition::Absent, 400, "InvalidBlockList", "unknown_block");
    check(Condition::None, 400, "Md5Mismatch", "checksum");
    check(Condition::None, 400, "Crc64Mismatch", "checksum");
    check(Condition::None, 401, "InvalidAuthenticationInfo", "denied");
    check(Condition::None, 403, "AuthorizationPermissionMismatch", "denied");
    check(Condition::None, 403, "", "denied");
    check(Condition::None, 404, "", "unavailable");
    check(Condition::None, 408, "", "unavailable");
    check(Condition::None, 409, "ContainerBeingDeleted", "unavailable");
    check(Condition::None, 409, "InvalidBlobType", "refused");
    check(Condition::None, 409, "BlobImmutableDueToPolicy", "refused");
    check(Condition::None, 429, "TooManyRequests", "unavailable");
    check(Condition::None, 500, "InternalError", "unavailable");
    check(Condition::None, 500, "OperationTimedOut", "unavailable");
    check(Condition::None, 500, "FeatureNotSupported", "refused");
    check(Condition::None, 501, "", "refused");
    check(Condition::None, 502, "", "unavailable");
    check(Condition::None, 503, "ServerBusy", "unavailable");
    check(Condition::None, 504, "", "unavailable");
    check(Condition::None, 301, "", "refused");
    check(Condition::None, 400, "InvalidResourceName", "refused");
    check(Condition::None, 413, "RequestBodyTooLarge", "refused");
}

#[test]
fn a_container_is_named_where_it_is_missing() {
    let call = Call::on_container("Get Container Properties", "data");
    for code in ["ContainerNotFound", "ResourceNotFound"] {
        let error = answers().map(&call, &response(404, &[("x-ms-error-code", code)], ""));
        assert!(matches!(error, Error::ContainerNotFound { container } if container == "data"));
    }
    let error = answers().map(&call, &response(409, &[("x-ms-error-code", "ContainerAlreadyExists")], ""));
    assert_eq!(error.kind(), "already_exists");
}

#[test]
fn the_wait_that_the_service_asks_for_is_honoured() {
    let blob = blob();
    let call = Call::on_blob("Put Block", &blob, &Condition::None);
    let check = |headers: &[(&'static str, &'static str)], millis: Option<u64>| {
        for status in [429, 503] {
            let wait = answers().map(&call, &response(status, headers, "")).retry_after();
            assert_eq!(wait, millis.map(Duration::from_millis), "{headers:?}");
        }
    };
    let date = ("date", "Tue, 01 Dec 2026 10:00:00 GMT");
    check(&[], None);
    check(&[("retry-after", "7")], Some(7_000));
    check(&[("x-ms-retry-after-ms", "1500")], Some(1_500));
    check(&[("x-ms-retry-after-ms", "1500"), ("retry-after", "7")], Some(1_500));
    check(&[("retry-after", "Tue, 01 Dec 2026 10:01:30 GMT"), date], Some(90_000));
    check(&[("retry-after", "Tue, 01 Dec 2026 09:00:00 GMT"), date], Some(0));
    check(&[("retry-after", "soon")], None);
    // Without the server's clock ours must do.
    let late = [("retry-after", "Fri, 01 Jan 2100 00:00:00 GMT")];
    assert!(answers().map(&call, &response(429, &late, "")).retry_after().unwrap() > Duration::from_secs(60));
}

#[test]
fn a_refusal_says_what_the_service_said_and_the_rule() {
    let call = Call::on_container("Create Container", "data");
    let text = body(
        "InvalidResourceName",
        "The specified resource name contains invalid characters.\nRequestId:1-2",
    );
    let error = answers().map(&call, &response(400, &[], &text)).to_string();
    assert!(error.contains("invalid characters. RequestId:1-2"), "{error}");
    assert!(error.contains("3 to 63"), "{error}");
}

#[test]
fn a_denial_tells_the_clock_of_the_server_and_when_a_sas_was_valid() {
    let blob = blob();
    let call = Call::on_blob("Put Block", &blob, &Condition::None);
    let detail = "Signature not valid in the specified time frame: Start [a] - Expiry [b] - Current [c]";
    let text = format!(
        "<Error><Code>AuthenticationFailed</Code><Message>m</Message>\
         <AuthenticationErrorDetail>{detail}</AuthenticationErrorDetail></Error>"
    );
    let date = [("date", "Tue, 01 Dec 2026 10:00:00 GMT")];
    let error = answers().map(&call, &response(403, &date, &text)).to_string();
    assert!(error.contains("clock says Tue, 01 Dec 2026 10:00:00 GMT"), "{error}");
    assert!(error.contains("Expiry [b]"), "{error}");
    // What the server would have signed stays out: it comes with what we signed.
    let text = text.replace(detail, "The MAC signature found in the HTTP request 'canary' is not the same");
    let error = answers().map(&call, &response(403, &date, &text)).to_string();
    assert!(!error.contains("canary"), "{error}");
}

#[test]
fn no_answer_is_unclear_and_to_be_retried() {
    let blob = blob();
    let call = Call::on_blob("Put Block List", &blob, &Condition::Absent);
    let error = azure_core::Error::with_message(ErrorKind::Io, "connection reset");
    let error = answers().map(&call, &error);
    assert_eq!((error.kind(), error.class(), error.is_unclear()), ("transport", Class::Retry, true));
    assert!(chain(&error).contains("connection reset"), "{}", chain(&error));
}

#[test]
fn credentials_are_cut_from_whatever_the_service_repeats() {
    let blob = blob();
    let call = Call::on_blob("Put Block", &blob, &Condition::None);
    let sas = AzureCredential::Sas(Secret::new("?sv=1&sp=r&sig=ab%2Bcd%3D"));
    let cases = [
        (answers(), KEY),
        (Answers::new("acc", &sas), "ab%2Bcd%3D"),
        (Answers::new("acc", &sas), "ab+cd="),
        (Answers::new("acc", &sas), "https://h/c/b?comp=block&sv=1&sp=r&sig=ab%2Bcd%3D"),
    ];
    for (answers, secret) in cases {
        let errors = [
            response(400, &[], &body("Bad", &format!("value {secret} is bad"))),
            response(400, &[], &body(&secret.replace('&', "&amp;"), "x")),
            azure_core::Error::with_message(ErrorKind::Io, format!("sending to {secret} failed")),
        ];
        for error in errors {
            let error = answers.map(&call, &error);
            let shown = format!("{error:?} {}", chain(&error));
            for part in [KEY, "ab%2Bcd", "ab+cd"] {
                assert!(!shown.contains(part), "{shown}");
            }
        }
    }
}
