//! The registry's client against a server that is told what to answer.

use std::time::Duration;

use serde_json::{Value, json};
use wiremock::matchers::{header, method, path};
use wiremock::{Mock, MockServer, ResponseTemplate};

use super::*;
use crate::error::{Class, chain};
use crate::model::Secret;

fn plan(urls: &[&str]) -> plan::SchemaRegistry {
    plan::SchemaRegistry {
        urls: urls.iter().map(|&url| url.to_owned()).collect(),
        basic: None,
        allow_http: false,
        timeout: Duration::from_secs(5),
    }
}

fn registry(server: &MockServer) -> SchemaRegistry {
    SchemaRegistry::new(&plan(&[&server.uri()])).unwrap()
}

fn answer(status: u16, body: Value) -> ResponseTemplate {
    ResponseTemplate::new(status).set_body_json(body)
}

fn schema(text: &str, references: Value) -> ResponseTemplate {
    answer(200, json!({"schema": text, "references": references}))
}

fn reference(subject: &str, version: i64) -> Value {
    json!({"name": subject, "subject": subject, "version": version})
}

async fn on(server: &MockServer, at: &str, response: ResponseTemplate, times: u64) {
    Mock::given(method("GET")).and(path(at)).respond_with(response).expect(times).mount(server).await;
}

#[tokio::test]
async fn a_schema_is_fetched_once_and_kept() {
    let server = MockServer::start().await;
    on(&server, "/schemas/ids/7", schema(" {\"type\" : \"int\"} ", json!([])), 1).await;
    let registry = registry(&server);
    assert_eq!(registry.cached(7), None);
    let first = registry.schema(7).await.unwrap();
    assert_eq!((&*first.text, first.kind, first.id), (" {\"type\" : \"int\"} ", SchemaKind::Avro, 7));
    assert!(Arc::ptr_eq(&first, &registry.clone().schema(7).await.unwrap()));
    assert!(Arc::ptr_eq(&first, &registry.cached(7).unwrap()));
}

#[tokio::test]
async fn all_who_ask_at_once_share_one_fetch_and_its_failure() {
    let server = MockServer::start().await;
    let delay = Duration::from_millis(50);
    on(&server, "/schemas/ids/1", schema("\"int\"", json!([])).set_delay(delay), 1).await;
    on(&server, "/schemas/ids/2", ResponseTemplate::new(500).set_delay(delay), 1).await;
    let registry = registry(&server);
    let found = futures::future::join_all((0..20).map(|_| registry.schema(1))).await;
    assert!(found.iter().all(|answer| answer.is_ok()));
    let failed = futures::future::join_all((0..20).map(|_| registry.schema(2))).await;
    assert!(failed.iter().all(|answer| answer.as_ref().is_err_and(|e| e.class() == Class::Retry)));
}

#[tokio::test]
async fn a_fetch_survives_the_one_who_began_it() {
    let server = MockServer::start().await;
    let slow = schema("\"int\"", json!([])).set_delay(Duration::from_millis(100));
    on(&server, "/schemas/ids/1", slow, 1).await;
    let registry = registry(&server);
    let impatient = tokio::time::timeout(Duration::from_millis(1), registry.schema(1));
    assert!(impatient.await.is_err());
    assert!(registry.schema(1).await.is_ok());
}

#[tokio::test]
async fn unknown_ids_are_believed_for_thirty_seconds() {
    let server = MockServer::start().await;
    on(&server, "/schemas/ids/9", answer(404, json!({"error_code": 40403, "message": "no"})), 2).await;
    let registry = registry(&server);
    for _ in 0..3 {
        assert!(matches!(registry.schema(9).await, Err(Error::NotFound { id: 9 })));
    }
    tokio::time::pause();
    tokio::time::advance(NEGATIVE - Duration::from_millis(1)).await;
    assert!(matches!(registry.schema(9).await, Err(Error::NotFound { id: 9 })));
    tokio::time::advance(Duration::from_millis(1)).await;
    tokio::time::resume();
    let again = registry.schema(9).await.unwrap_err();
    assert_eq!(again.class(), Class::BadData);
    // Larger than any id: nobody is asked.
    assert!(matches!(registry.schema(u32::MAX).await, Err(Error::NotFound { .. })));
}

#[tokio::test]
async fn answers_mean_what_can_be_done_about_them() {
    let check = async |response: ResponseTemplate, class: Class, part: &str| {
        let server = MockServer::start().await;
        Mock::given(method("GET")).respond_with(response).expect(2).mount(&server).await;
        let registry = registry(&server);
        // Twice: none of these is kept.
        for _ in 0..2 {
            let error = registry.schema(1).await.unwrap_err();
            assert_eq!(error.class(), class, "{error}");
            assert!(chain(&error).contains(part), "{error} lacks {part:?}");
        }
    };
    for status in [408, 429, 500, 502, 503, 504] {
        check(ResponseTemplate::new(status), Class::Retry, &format!("HTTP {status}")).await;
    }
    for status in [401, 403] {
        check(ResponseTemplate::new(status), Class::Denied, &format!("HTTP {status}")).await;
    }
    check(answer(500, json!({"error_code": 50001, "message": "store down"})), Class::Retry, "store down")
        .await;
    check(ResponseTemplate::new(405), Class::BadPlan, "HTTP 405").await;
    // Not the registry's own words.
    check(ResponseTemplate::new(404).set_body_string("default backend"), Class::Retry, "404").await;
    check(answer(404, json!({"error_code": 0, "message": "no resource"})), Class::Retry, "404").await;
    check(ResponseTemplate::new(200).set_body_string("<html>"), Class::Retry, "not a schema").await;
    let redirect = ResponseTemplate::new(302).insert_header("Location", "https://u:hunter2@else.example/");
    check(redirect, Class::Retry, "redirects to https://***@else.example/").await;
}

#[tokio::test]
async fn the_registry_may_say_when_to_come_back() {
    let server = MockServer::start().await;
    on(&server, "/schemas/ids/1", ResponseTemplate::new(503).insert_header("Retry-After", "17"), 1).await;
    let error = registry(&server).schema(1).await.unwrap_err();
    assert_eq!(error.retry_after(), Some(Duration::from_secs(17)));
}

#[tokio::test]
async fn silence_and_closed_ports_are_for_another_try() {
    let server = MockServer::start().await;
    on(&server, "/schemas/ids/1", ResponseTemplate::new(200).set_delay(Duration::from_secs(30)), 1).await;
    let mut plan = plan(&[&server.uri()]);
    plan.timeout = Duration::from_millis(100);
    let error = SchemaRegistry::new(&plan).unwrap().schema(1).await.unwrap_err();
    assert_eq!(error.class(), Class::Retry);
    assert!(error.to_string().contains("no answer in time"), "{error}");

    plan.urls = vec![closed_port()];
    let error = SchemaRegistry::new(&plan).unwrap().schema(1).await.unwrap_err();
    assert_eq!(error.class(), Class::Retry);
    assert!(error.to_string().ends_with("no answer"), "{error}");
}

// Nobody listens where a listener has just been.
fn closed_port() -> String {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    format!("http://{}", listener.local_addr().unwrap())
}

#[tokio::test]
async fn registries_are_asked_in_order_until_one_answers() {
    let (broken, good) = (MockServer::start().await, MockServer::start().await);
    Mock::given(method("GET")).respond_with(ResponseTemplate::new(503)).expect(1).mount(&broken).await;
    for id in 1..4 {
        on(&good, &format!("/schemas/ids/{id}"), schema("\"int\"", json!([])), 1).await;
    }
    let registry = SchemaRegistry::new(&plan(&[&broken.uri(), &good.uri()])).unwrap();
    for id in 1..4 {
        assert!(registry.schema(id).await.is_ok(), "the good one is remembered");
    }
    let both_down = SchemaRegistry::new(&plan(&[&closed_port(), &closed_port()])).unwrap();
    assert_eq!(both_down.schema(1).await.unwrap_err().class(), Class::Retry);
}

#[tokio::test]
async fn references_come_behind_what_they_need() {
    let server = MockServer::start().await;
    on(&server, "/schemas/ids/1", schema("main", json!([reference("a", 1), reference("b", 2)])), 1).await;
    on(&server, "/subjects/a/versions/1", schema("A", json!([reference("c", 3)])), 1).await;
    on(&server, "/subjects/b/versions/2", schema("B", json!([reference("c", 3), reference("a", 1)])), 1)
        .await;
    on(&server, "/subjects/c/versions/3", schema("C", json!(null)), 1).await;
    let found = registry(&server).schema(1).await.unwrap();
    let texts: Vec<&str> = found.references.iter().map(|(_, text)| &**text).collect();
    assert_eq!(texts, ["C", "A", "B"]);
    assert_eq!(found.references[0].0, "c");
}

#[tokio::test]
async fn subjects_are_single_path_segments() {
    let server = MockServer::start().await;
    on(&server, "/schemas/ids/1", schema("main", json!([reference("a/b c?", 1)])), 1).await;
    on(&server, "/subjects/a%2Fb%20c%3F/versions/1", schema("A", json!([])), 1).await;
    assert!(registry(&server).schema(1).await.is_ok());
    on(&server, "/schemas/ids/2", schema("main", json!([reference("..", 1)])), 1).await;
    let error = registry(&server).schema(2).await.unwrap_err();
    assert!(matches!(error, Error::Invalid { id: 2, .. }), "{error}");
}

async fn bad_schema(server: &MockServer, part: &str) {
    let registry = registry(server);
    // Twice: the second answer comes from the cache.
    for _ in 0..2 {
        let error = registry.schema(1).await.unwrap_err();
        assert!(matches!(&error, Error::Invalid { id: 1, reason } if reason.contains(part)), "{error}");
        assert_eq!(error.class(), Class::BadData);
    }
}

#[tokio::test]
async fn cycles_of_references_end() {
    let server = MockServer::start().await;
    on(&server, "/schemas/ids/1", schema("main", json!([reference("a", 1)])), 1).await;
    on(&server, "/subjects/a/versions/1", schema("A", json!([reference("b", 1)])), 1).await;
    on(&server, "/subjects/b/versions/1", schema("B", json!([reference("a", 1)])), 1).await;
    bad_schema(&server, "cycle").await;
}

// A chain of references: the schema needs the first, each needs the next.
async fn chain_of(length: usize) -> MockServer {
    let server = MockServer::start().await;
    on(&server, "/schemas/ids/1", schema("main", json!([reference("s1", 1)])), 1).await;
    for i in 1..=length {
        let next = if i < length { json!([reference(&format!("s{}", i + 1), 1)]) } else { json!([]) };
        let response = schema("S", next);
        Mock::given(path(format!("/subjects/s{i}/versions/1"))).respond_with(response).mount(&server).await;
    }
    server
}

#[tokio::test]
async fn references_are_followed_32_deep() {
    let found = registry(&chain_of(32).await).schema(1).await.unwrap();
    assert_eq!(found.references.len(), 32);
    bad_schema(&chain_of(33).await, "more than 32 deep").await;
}

#[tokio::test]
async fn at_most_200_schemas_are_referred_to() {
    let wide = async |count: usize| {
        let server = MockServer::start().await;
        let references: Vec<Value> = (0..count).map(|i| reference("s", i as i64 + 1)).collect();
        on(&server, "/schemas/ids/1", schema("main", json!(references)), 1).await;
        let any = Mock::given(wiremock::matchers::path_regex("^/subjects/s/versions/"));
        any.respond_with(schema("S", json!([]))).mount(&server).await;
        server
    };
    assert_eq!(registry(&wide(200).await).schema(1).await.unwrap().references.len(), 200);
    bad_schema(&wide(201).await, "more than 200").await;
}

#[tokio::test]
async fn a_reference_that_leads_nowhere_is_the_schemas_fault_and_an_outage_is_not() {
    let server = MockServer::start().await;
    on(&server, "/schemas/ids/1", schema("main", json!([reference("a", 1)])), 1).await;
    on(&server, "/subjects/a/versions/1", answer(404, json!({"error_code": 40401})), 1).await;
    bad_schema(&server, "leads nowhere").await;

    let server = MockServer::start().await;
    on(&server, "/schemas/ids/1", schema("main", json!([reference("a", 1)])), 1).await;
    on(&server, "/subjects/a/versions/1", ResponseTemplate::new(503), 1).await;
    assert_eq!(registry(&server).schema(1).await.unwrap_err().class(), Class::Retry);
}

#[tokio::test]
async fn sizes_are_limited() {
    let server = MockServer::start().await;
    on(&server, "/schemas/ids/1", ResponseTemplate::new(200).set_body_bytes(vec![b' '; 5 << 20]), 1).await;
    bad_schema(&server, "too large").await;
    let server = MockServer::start().await;
    on(&server, "/schemas/ids/1", schema(&"x".repeat(MAX_TEXT + 1), json!([])), 1).await;
    bad_schema(&server, "larger than 1 MiB").await;
    let server = MockServer::start().await;
    let references: Vec<Value> = (1..=5).map(|version| reference("s", version)).collect();
    on(&server, "/schemas/ids/1", schema("main", json!(references)), 1).await;
    let any = Mock::given(wiremock::matchers::path_regex("^/subjects/s/versions/"));
    any.respond_with(schema(&"x".repeat(MAX_TEXT), json!([]))).mount(&server).await;
    bad_schema(&server, "references are larger than").await;
}

#[tokio::test]
async fn other_languages_are_told_apart() {
    let check = async |kind: &str, expected: Result<SchemaKind, ()>| {
        let server = MockServer::start().await;
        on(&server, "/schemas/ids/1", answer(200, json!({"schema": "s", "schemaType": kind})), 1).await;
        let answer = registry(&server).schema(1).await;
        assert_eq!(answer.map(|schema| schema.kind).map_err(|_| ()), expected, "{kind}");
    };
    check("AVRO", Ok(SchemaKind::Avro)).await;
    check("JSON", Ok(SchemaKind::Json)).await;
    check("PROTOBUF", Ok(SchemaKind::Protobuf)).await;
    check("THRIFT", Err(())).await;
}

#[tokio::test]
async fn credentials_are_sent_and_never_shown() {
    let server = MockServer::start().await;
    let authorized = header("Authorization", "Basic YWxpY2U6aHVudGVyMg==");
    Mock::given(authorized)
        .respond_with(answer(500, json!({"error_code": 1, "message": "bad password hunter2"})))
        .expect(1)
        .mount(&server)
        .await;
    let mut plan = plan(&[&server.uri()]);
    plan.basic = Some(("alice".to_owned(), Secret::new("hunter2")));
    let registry = SchemaRegistry::new(&plan).unwrap();
    let error = registry.schema(1).await.unwrap_err();
    let shown = format!("{} {error:?} {registry:?}", chain(&error));
    assert!(!shown.contains("hunter2"), "{shown}");
    assert!(shown.contains("bad password ***"), "{shown}");
}

#[tokio::test]
async fn redirects_are_not_followed() {
    let (server, other) = (MockServer::start().await, MockServer::start().await);
    Mock::given(method("GET")).respond_with(schema("\"int\"", json!([]))).expect(0).mount(&other).await;
    let redirect = ResponseTemplate::new(307).insert_header("Location", format!("{}/x", other.uri()));
    on(&server, "/schemas/ids/1", redirect, 1).await;
    assert!(registry(&server).schema(1).await.is_err());
}

#[tokio::test]
async fn a_probe_needs_a_registry_that_answers() {
    let check = async |response: ResponseTemplate, expected: Result<(), Class>| {
        let server = MockServer::start().await;
        on(&server, "/schemas/ids/2147483647", response, 1).await;
        assert_eq!(registry(&server).probe().await.map_err(|error| error.class()), expected);
    };
    check(answer(404, json!({"error_code": 40403})), Ok(())).await;
    check(ResponseTemplate::new(401), Err(Class::Denied)).await;
    check(ResponseTemplate::new(404), Err(Class::Retry)).await;
}

#[test]
fn a_plan_without_urls_is_refused() {
    let error = SchemaRegistry::new(&plan(&[])).unwrap_err();
    assert_eq!(error.class(), Class::BadPlan);
}
