//! `blobfeed inspect`: what is in blobs.

use std::path::{Path, PathBuf};

use anyhow::Context as _;
use serde_json::json;
use tokio::runtime::Handle;

use super::args::Output;
use super::exit;
use crate::audit::{BlobFile, BlobSource, Inspection, inspect};
use crate::error::chain;
use crate::model::{BlobName, BlobRef};
use crate::{plan, store};

/// Inspects each blob and prints what was found; goes on after a faulty one.
pub(super) async fn run(blobs: &[PathBuf], plan: Option<&Path>, format: Output) -> u8 {
    let store = match plan.map(open_store).transpose() {
        Ok(store) => store,
        Err(error) => {
            eprintln!("error: {error:#}");
            return exit::FAILED;
        }
    };
    let mut code = exit::DONE;
    for blob in blobs {
        let found = match &store {
            Some(store) => in_store(store, blob).await,
            None => in_file(blob).await,
        };
        match found {
            Ok(found) => print(blob, &found, format),
            Err(error) => {
                eprintln!("{}: {error:#}", blob.display());
                code = exit::FAULTS;
            }
        }
    }
    code
}

fn open_store(plan: &Path) -> anyhow::Result<store::SharedStore> {
    let loaded = plan::load_from_environment(plan).map_err(|faults| anyhow::anyhow!("{faults}"))?;
    Ok(store::open(&loaded.plan.store)?)
}

async fn in_file(path: &Path) -> anyhow::Result<Inspection> {
    let BlobFile { content, metadata } = BlobFile::open(path).await?;
    let found = tokio::task::spawn_blocking(move || inspect(content, metadata)).await?;
    found.map_err(|error| anyhow::anyhow!("{}", chain(&error)))
}

async fn in_store(store: &store::SharedStore, path: &Path) -> anyhow::Result<Inspection> {
    let text = path.to_str().context("the name is not UTF-8")?;
    let (container, name) = text.split_once('/').context("with --plan a blob is CONTAINER/NAME")?;
    let blob = BlobRef { container: container.into(), name: BlobName::new(name)? };
    let properties = store.properties(&blob).await?.context("there is no such blob in the plan's store")?;
    let source = BlobSource::new(store.clone(), Handle::current(), blob);
    let found = tokio::task::spawn_blocking(move || inspect(source, properties.metadata)).await?;
    found.map_err(|error| anyhow::anyhow!("{}", chain(&error)))
}

fn print(blob: &Path, found: &Inspection, format: Output) {
    if format == Output::Json {
        println!("{}", json!({ "blob": blob.display().to_string(), "found": found }));
        return;
    }
    println!("{}", blob.display());
    // What stands in a blob is somebody else's text: it must not move the cursor or make lines of its own.
    let plain = |text: &str| -> String {
        text.chars()
            .flat_map(|c| if c.is_control() { c.escape_default().collect() } else { vec![c] })
            .collect()
    };
    let line = |name: &str, value: &str| println!("  {:<14} {}", plain(name), plain(value));
    line("format", &format!("{}, codec {}", found.format, found.codec));
    line(
        "records",
        &format!("{} in {} blocks, each checked against the schema", found.records, found.blocks),
    );
    line("bytes", &format!("{} stored, {} before compression", found.stored_bytes, found.raw_bytes));
    if let (Some(first), Some(last)) = (found.metadata.get("first_offset"), found.metadata.get("last_offset"))
    {
        line("offsets", &format!("{first} to {last}"));
    }
    for (name, value) in &found.header {
        line(name, value);
    }
    for (name, value) in &found.metadata {
        line(name, value);
    }
    line("schema", &found.schema);
}
