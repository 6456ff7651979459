//! A schema registry that knows one schema, for the quickstart only.

use axum::extract::Path;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use serde_json::json;

use super::data::SCHEMA_ID;

/// Serves until it is dropped.
pub(super) struct Registry {
    /// Base URL of Confluent's API.
    pub(super) url: String,
    task: tokio::task::JoinHandle<()>,
}

impl Drop for Registry {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Opens a free port of the loopback interface and answers for `schema` there.
pub(super) async fn serve(schema: &'static str) -> std::io::Result<Registry> {
    let listener = tokio::net::TcpListener::bind(("127.0.0.1", 0)).await?;
    let url = format!("http://{}", listener.local_addr()?);
    let app =
        axum::Router::new().route("/schemas/ids/{id}", get(async |Path(id): Path<u32>| answer(id, schema)));
    let task = tokio::spawn(async move {
        // Ends with the process or with the handle.
        let _ = axum::serve(listener, app).await;
    });
    Ok(Registry { url, task })
}

fn answer(id: u32, schema: &str) -> Response {
    let kind = [(header::CONTENT_TYPE, "application/vnd.schemaregistry.v1+json")];
    if id == SCHEMA_ID {
        (kind, json!({ "schema": schema }).to_string()).into_response()
    } else {
        let body = json!({ "error_code": 40403, "message": format!("Schema {id} not found") });
        (StatusCode::NOT_FOUND, kind, body.to_string()).into_response()
    }
}
