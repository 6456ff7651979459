//! Schemas at the registry.

use serde_json::{Value, json};

use super::servers;

/// Registers `schema` under the values of `topic`; its id.
pub(crate) async fn register(topic: &str, schema: &str) -> u32 {
    let url = format!("{}/subjects/{topic}-value/versions", servers::registry());
    let body = json!({ "schema": schema }).to_string();
    let kind = ("content-type", "application/vnd.schemaregistry.v1+json");
    let request = reqwest::Client::new().post(&url).header(kind.0, kind.1).body(body);
    let answer = request.send().await.unwrap_or_else(|error| panic!("{url}: {error}"));
    let (status, text) = (answer.status(), answer.text().await.unwrap_or_default());
    assert!(status.is_success(), "{url}: {status} {text}");
    let answer: Value = serde_json::from_str(&text).expect("the registry answers in JSON");
    let id = answer["id"].as_u64().unwrap_or_else(|| panic!("no id in {text}"));
    u32::try_from(id).expect("ids have 32 bits")
}
