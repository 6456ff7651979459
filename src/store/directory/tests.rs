use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::PathBuf;
use std::time::Duration;

use super::*;
use crate::model::BlobName;

const CONTAINER: &str = "data";

struct Folder {
    root: tempfile::TempDir,
    store: DirectoryStore,
}

impl Folder {
    async fn new() -> Folder {
        let root = tempfile::tempdir().unwrap();
        let store = DirectoryStore::open(root.path()).unwrap();
        store.ensure_container(CONTAINER, true).await.unwrap();
        Folder { root, store }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.root.path().join(CONTAINER).join(name)
    }

    async fn put(&self, name: &str, content: &str, condition: Condition) -> Result<Written, Error> {
        let content = Bytes::copy_from_slice(content.as_bytes());
        let (headers, metadata) = (BlobHeaders::default(), Metadata::new());
        self.store.put(&blob(name), content, &headers, &metadata, &condition).await
    }

    async fn stage(&self, name: &str, id: &BlockId) -> Result<Written, Error> {
        self.store.stage_block(&blob(name), id, &BlockContent::from(vec![1, 2, 3])).await
    }

    async fn commit(&self, name: &str, id: &BlockId) -> Result<Written, Error> {
        let list = BlockList {
            blocks: vec![id.clone()],
            headers: BlobHeaders::default(),
            metadata: Metadata::from([("commit_id".to_owned(), "7".to_owned())]),
            condition: Condition::Absent,
        };
        self.store.commit_block_list(&blob(name), &list).await
    }

    fn hidden_files(&self) -> Vec<String> {
        let mut found = Vec::new();
        let mut folders = vec![self.path(HIDDEN)];
        while let Some(folder) = folders.pop() {
            for entry in fs::read_dir(folder).into_iter().flatten() {
                let path = entry.unwrap().path();
                if path.is_dir() { folders.push(path) } else { found.push(path.display().to_string()) }
            }
        }
        found.retain(|path| !path.contains("/locks/") && !path.contains("/labels/"));
        found
    }
}

fn blob(name: &str) -> BlobRef {
    BlobRef { container: CONTAINER.into(), name: BlobName::new(name).unwrap() }
}

fn id(number: u32) -> BlockId {
    BlockId::new(1, number, 0)
}

#[tokio::test]
async fn a_blob_is_an_ordinary_file_and_nothing_else_is_left() {
    let folder = Folder::new().await;
    folder.stage("a/b.avro", &id(0)).await.unwrap();
    folder.stage("a/b.avro", &id(1)).await.unwrap();
    folder.commit("a/b.avro", &id(0)).await.unwrap();
    assert_eq!(fs::read(folder.path("a/b.avro")).unwrap(), [1, 2, 3]);
    let mode = fs::metadata(folder.path("a/b.avro")).unwrap().permissions().mode();
    assert_eq!(mode & 0o777 & !0o640, 0, "{mode:o}");
    assert_eq!(folder.hidden_files(), Vec::<String>::new());
}

#[tokio::test]
async fn another_process_sees_the_same_store() {
    let folder = Folder::new().await;
    folder.stage("a", &id(0)).await.unwrap();
    let other = DirectoryStore::open(folder.root.path()).unwrap();
    let there = Folder { root: tempfile::tempdir().unwrap(), store: other };
    there.commit("a", &id(0)).await.unwrap();
    let properties = folder.store.properties(&blob("a")).await.unwrap().unwrap();
    assert_eq!(properties.metadata["commit_id"], "7");
}

#[tokio::test]
async fn links_do_not_lead_out_of_the_root() {
    let outside = tempfile::tempdir().unwrap();
    fs::write(outside.path().join("secret"), "s").unwrap();
    let folder = Folder::new().await;
    symlink(outside.path(), folder.path("out")).unwrap();
    symlink(outside.path().join("secret"), folder.path("link")).unwrap();
    for name in ["link", "out/secret"] {
        assert!(!matches!(folder.store.read(&blob(name), 0, 10).await, Ok(Some(_))), "{name}");
        assert!(!matches!(folder.store.properties(&blob(name)).await, Ok(Some(_))), "{name}");
    }
    folder.put("out/new", "x", Condition::None).await.unwrap_err();
    folder.put("link", "x", Condition::None).await.unwrap_err();
    assert_eq!(fs::read_dir(outside.path()).unwrap().count(), 1);
    assert_eq!(fs::read(outside.path().join("secret")).unwrap(), b"s");
    assert_eq!(folder.store.list(CONTAINER, "", None).await.unwrap().names, []);
    // Nor does a container.
    symlink(outside.path(), folder.root.path().join("other")).unwrap();
    folder.store.list("other", "", None).await.unwrap_err();
}

#[tokio::test]
async fn files_of_others_are_blobs_without_metadata_and_are_not_replaced() {
    let folder = Folder::new().await;
    fs::write(folder.path("foreign.avro"), "theirs").unwrap();
    let properties = folder.store.properties(&blob("foreign.avro")).await.unwrap().unwrap();
    assert_eq!((properties.len, properties.metadata.len()), (6, 0));
    let error = folder.put("foreign.avro", "ours", Condition::Absent).await.unwrap_err();
    assert!(matches!(error, Error::AlreadyExists { .. }), "{error:?}");
    folder.put("foreign.avro", "ours", Condition::Matches(properties.etag)).await.unwrap();
    assert_eq!(fs::read(folder.path("foreign.avro")).unwrap(), b"ours");
    // And the other way round: labels do not cling to bytes that they do not describe.
    let ours = folder.store.properties(&blob("foreign.avro")).await.unwrap().unwrap().etag;
    fs::write(folder.path("foreign.avro"), "changed by hand").unwrap();
    assert_ne!(folder.store.properties(&blob("foreign.avro")).await.unwrap().unwrap().etag, ours);
}

#[tokio::test]
async fn a_blob_and_a_folder_of_one_name_are_refused() {
    let folder = Folder::new().await;
    folder.put("a/b", "x", Condition::None).await.unwrap();
    for (name, condition) in [
        ("a", Condition::None),
        ("a", Condition::Absent),
        ("a/b/c", Condition::None),
        ("a/b/c/d", Condition::Absent),
    ] {
        let error = folder.put(name, "x", condition).await.unwrap_err();
        assert!(matches!(error, Error::Refused { .. }), "{name}: {error:?}");
    }
    assert_eq!(folder.hidden_files(), Vec::<String>::new());
}

#[tokio::test]
async fn names_that_a_file_system_cannot_hold_are_refused() {
    let folder = Folder::new().await;
    for name in
        ["x".repeat(256), format!("a/{}/b", "y".repeat(300)), format!("{HIDDEN}/x"), HIDDEN.to_owned()]
    {
        let error = folder.put(&name, "x", Condition::None).await.unwrap_err();
        assert!(matches!(error, Error::Refused { .. }), "{name}: {error:?}");
    }
    folder.put(&"x".repeat(255), "x", Condition::None).await.unwrap();
    // Only the first segment is taken, and only as a whole.
    folder.put(".blobfeeder", "x", Condition::None).await.unwrap();
    folder.put("a/.blobfeed/b", "x", Condition::None).await.unwrap();
    let page = folder.store.list(CONTAINER, "", None).await.unwrap();
    assert_eq!(page.names.len(), 3);
}

/// Takes a put apart: what is on disk when its writer dies at each step.
#[tokio::test]
async fn a_writer_that_dies_between_its_steps_leaves_the_old_blob_or_the_new_one() {
    for step in ["before the bytes", "after the bytes"] {
        let folder = Folder::new().await;
        let old = folder.put("head", "old", Condition::Absent).await.unwrap().etag;
        let paths = labels::Paths::of(&blob("head").name);
        let labels_folder = folder.path(&paths.labels_folder());
        let old_labels = fs::read(labels_folder.join(paths.labels())).unwrap();
        let new = folder.put("head", "new!", Condition::Matches(old.clone())).await.unwrap().etag;
        // Back to where the writer of the new content died.
        fs::rename(labels_folder.join(paths.labels()), labels_folder.join(paths.pending())).unwrap();
        fs::write(labels_folder.join(paths.labels()), old_labels).unwrap();
        let (expected, content) = if step == "before the bytes" {
            fs::write(folder.path("head"), "old").unwrap();
            (old, "old")
        } else {
            (new, "new!")
        };
        let properties = folder.store.properties(&blob("head")).await.unwrap().unwrap();
        assert_eq!(properties.etag, expected, "{step}");
        let read = folder.store.read(&blob("head"), 0, 100).await.unwrap().unwrap();
        assert_eq!(read, content, "{step}");
        assert!(!labels_folder.join(paths.pending()).exists(), "{step}");
        folder.put("head", "next", Condition::Matches(expected)).await.unwrap();
    }
}

#[tokio::test]
async fn a_first_writer_that_dies_before_its_bytes_leaves_no_blob() {
    let folder = Folder::new().await;
    folder.put("head", "old", Condition::Absent).await.unwrap();
    let paths = labels::Paths::of(&blob("head").name);
    let labels_folder = folder.path(&paths.labels_folder());
    fs::rename(labels_folder.join(paths.labels()), labels_folder.join(paths.pending())).unwrap();
    fs::remove_file(folder.path("head")).unwrap();
    assert_eq!(folder.store.properties(&blob("head")).await.unwrap(), None);
    folder.put("head", "first", Condition::Absent).await.unwrap();
}

#[tokio::test]
async fn left_overs_go_after_a_week_and_not_before() {
    let folder = Folder::new().await;
    folder.stage("open.avro", &id(0)).await.unwrap();
    fs::create_dir_all(folder.path(".blobfeed/tmp")).unwrap();
    fs::write(folder.path(".blobfeed/tmp/dead"), "x").unwrap();
    let root = Dir::open_ambient_dir(folder.root.path(), ambient_authority()).unwrap();
    let day = Duration::from_secs(24 * 3600);
    staging::sweep(&root, SystemTime::now() + 6 * day);
    assert_eq!(folder.hidden_files().len(), 2);
    staging::sweep(&root, SystemTime::now() + 8 * day);
    assert_eq!(folder.hidden_files(), Vec::<String>::new());
    let error = folder.commit("open.avro", &id(0)).await.unwrap_err();
    assert!(matches!(error, Error::UnknownBlock { .. }), "{error:?}");
    // The store still works where its folders were swept away.
    folder.stage("open.avro", &id(1)).await.unwrap();
    folder.commit("open.avro", &id(1)).await.unwrap();
}

#[tokio::test]
async fn a_path_that_is_no_folder_is_a_fault_of_the_plan() {
    let root = tempfile::tempdir().unwrap();
    fs::write(root.path().join("file"), "x").unwrap();
    let error = DirectoryStore::open(&root.path().join("file")).err().unwrap();
    assert!(matches!(error, Error::Configuration { .. }), "{error:?}");
}

#[test]
fn a_full_disk_is_retried() {
    let full = disk("Put Block", &blob("a"))(io::Error::from(io::ErrorKind::StorageFull));
    assert!(matches!(full, Error::Disk { .. }));
    assert!(full.class().is_transient());
}
