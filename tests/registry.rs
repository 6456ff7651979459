//! The schema registry's client against a real registry.
//!
//! `BLOBFEED_TEST_REGISTRY` names it, default `http://127.0.0.1:8081/apis/ccompat/v7`. What is registered here has names
//! of its own in every run and stays there.

use std::time::Duration;

use blobfeed::format::avro::AvroSchema;
use blobfeed::plan;
use blobfeed::registry::{Error, SchemaKind, SchemaRegistry};
use serde_json::{Value, json};

fn url() -> String {
    std::env::var("BLOBFEED_TEST_REGISTRY")
        .unwrap_or_else(|_| "http://127.0.0.1:8081/apis/ccompat/v7".to_owned())
}

fn registry() -> SchemaRegistry {
    let plan = plan::SchemaRegistry {
        urls: vec![url()],
        basic: None,
        allow_http: false,
        timeout: Duration::from_secs(10),
    };
    SchemaRegistry::new(&plan).expect("the address in BLOBFEED_TEST_REGISTRY is a URL")
}

fn unique(name: &str) -> String {
    format!("{name}{:016x}", rand::random::<u64>())
}

// Registers `body` and answers its id.
async fn register(subject: &str, body: Value) -> u32 {
    let mut at = reqwest::Url::parse(&url()).expect("the address in BLOBFEED_TEST_REGISTRY is a URL");
    at.path_segments_mut().expect("http").extend(["subjects", subject, "versions"]);
    let request = reqwest::Client::new()
        .post(at)
        .header("Content-Type", "application/vnd.schemaregistry.v1+json")
        .body(body.to_string());
    let answer = request.send().await;
    let answer = answer.unwrap_or_else(|error| panic!("no schema registry answers at {}: {error}", url()));
    let status = answer.status();
    let body = answer.text().await.expect("an answer");
    assert!(status.is_success(), "{status} {body}");
    let body: Value = serde_json::from_str(&body).expect("JSON");
    u32::try_from(body["id"].as_u64().expect("an id")).expect("an id of 32 bits")
}

#[tokio::test]
async fn a_schema_comes_back_byte_for_byte() {
    let name = unique("R");
    let text = format!(
        "{{ \"type\":\"record\",\n \"name\":\"{name}\", \"doc\":\"\\u00e4 ö\", \"x\":1.50, \"fields\":[ {{\"name\":\"a\",\"type\":\"long\"}} ] }}"
    );
    let id = register(&name, json!({ "schema": text })).await;
    let registry = registry();
    let found = registry.schema(id).await.expect("the schema was registered");
    assert_eq!(&*found.text, text);
    assert_eq!((found.kind, found.references.len()), (SchemaKind::Avro, 0));
    assert!(AvroSchema::new(id, found.text.clone()).is_ok());
}

#[tokio::test]
async fn references_are_followed_through_subjects_with_odd_names() {
    let (inner, middle, outer) = (unique("I"), unique("M"), unique("O"));
    let inner_subject = format!("{inner}/with space+%2F");
    register(
        &inner_subject,
        json!({"schema": format!(r#"{{"type":"enum","name":"{inner}","namespace":"x","symbols":["A","B"]}}"#)}),
    )
    .await;
    let reference =
        |name: &str, subject: &str| json!({"name": format!("x.{name}"), "subject": subject, "version": 1});
    register(
        &middle,
        json!({
            "schema": format!(r#"{{"type":"record","name":"x.{middle}","fields":[{{"name":"e","type":"x.{inner}"}}]}}"#),
            "references": [reference(&inner, &inner_subject)],
        }),
    )
    .await;
    let id = register(
        &outer,
        json!({
            "schema": format!(
                r#"{{"type":"record","name":"y.{outer}","fields":[{{"name":"m","type":"x.{middle}"}},{{"name":"e","type":["null","x.{inner}"]}}]}}"#
            ),
            "references": [reference(&middle, &middle), reference(&inner, &inner_subject)],
        }),
    )
    .await;
    let found = registry().schema(id).await.expect("the schema and its references were registered");
    let names: Vec<&str> = found.references.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(names, [format!("x.{inner}"), format!("x.{middle}")]);
    let schema =
        AvroSchema::with_references(id, &found.text, &found.references).expect("all names are defined");
    assert!(schema.program.validate(&[2, 2, 0]).is_ok());
    assert!(schema.program.validate(&[4, 0]).is_err());
}

#[tokio::test]
async fn an_id_that_was_never_given_is_not_found() {
    let registry = registry();
    registry.probe().await.unwrap_or_else(|error| panic!("no schema registry answers at {}: {error}", url()));
    let error = registry.schema(2_000_000_000).await.expect_err("no such id");
    assert!(matches!(error, Error::NotFound { id: 2_000_000_000 }), "{error}");
    assert!(matches!(registry.schema(u32::MAX).await, Err(Error::NotFound { .. })));
}

#[tokio::test]
async fn another_service_is_not_taken_for_a_registry() {
    let mut elsewhere = reqwest::Url::parse(&url()).expect("the address in BLOBFEED_TEST_REGISTRY is a URL");
    elsewhere.path_segments_mut().expect("http").push("nothing-here");
    let plan = plan::SchemaRegistry {
        urls: vec![elsewhere.into()],
        basic: None,
        allow_http: false,
        timeout: Duration::from_secs(10),
    };
    let registry = SchemaRegistry::new(&plan).expect("a URL");
    for answer in [registry.probe().await, registry.schema(1).await.map(|_| ())] {
        assert!(
            matches!(answer, Err(Error::Unavailable { .. })),
            "{answer:?}: a wrong path makes no bad records"
        );
    }
}
