//! Containers as somebody else sees them.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde::Deserialize;

use super::python;

/// Azurite's published account.
pub(crate) const ACCOUNT: &str = "devstoreaccount1";
/// Its published key, the same on every machine in the world; here it stands for a secret that must not be shown.
pub(crate) const KEY: &str =
    "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw==";

/// A committed blob.
#[derive(Debug, Clone, Deserialize)]
pub(crate) struct Blob {
    pub(crate) name: String,
    pub(crate) size: u64,
    pub(crate) etag: String,
    pub(crate) content_type: Option<String>,
    pub(crate) metadata: BTreeMap<String, String>,
    /// Where it was downloaded to.
    #[serde(skip)]
    pub(crate) path: PathBuf,
}

impl Blob {
    /// A metadata entry that must be there.
    pub(crate) fn meta(&self, name: &str) -> &str {
        self.metadata
            .get(name)
            .unwrap_or_else(|| panic!("{} has no metadata {name:?}: {:?}", self.name, self.metadata))
    }

    /// One that must be a number.
    pub(crate) fn number(&self, name: &str) -> i64 {
        self.meta(name).parse().unwrap_or_else(|_| panic!("{}: {name} = {:?}", self.name, self.meta(name)))
    }
}

/// All committed blobs of `container`, without their content.
pub(crate) async fn list(container: &str) -> Vec<Blob> {
    parse(&python::tell("azurite.py", &["list", container]).await, Path::new(""))
}

/// Fetches all committed blobs of `container` into `folder`.
pub(crate) async fn download(container: &str, folder: &Path) -> Vec<Blob> {
    std::fs::create_dir_all(folder).expect("a folder can be made");
    let folder_text = folder.to_str().expect("temporary folders are UTF-8");
    parse(&python::tell("azurite.py", &["download", container, folder_text]).await, folder)
}

/// Makes `container`.
pub(crate) async fn create(container: &str) {
    python::tell("azurite.py", &["create", container]).await;
}

/// Deletes `container`, whether or not it is there.
pub(crate) async fn delete(container: &str) {
    python::tell("azurite.py", &["delete", container]).await;
}

fn parse(text: &str, folder: &Path) -> Vec<Blob> {
    let parse = |line| {
        let mut blob: Blob = serde_json::from_str(line).unwrap_or_else(|error| panic!("{line}: {error}"));
        blob.path = folder.join(&blob.name);
        blob
    };
    text.lines().map(parse).collect()
}
