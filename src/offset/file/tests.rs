use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;

use super::*;

const FULL_DISK_FOLDER: &str = "BLOBFEED_TEST_FULL_DISK_FOLDER";

fn entry(id: &str, offset: &str) -> PersistOffset {
    let key = FeedPartitionKey { plan: "p".into(), feed: "f".into(), id: id.into() };
    PersistOffset { key, offset: offset.into() }
}

fn in_folder() -> (tempfile::TempDir, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("offsets.json");
    (folder, path)
}

async fn persist_one(storage: &FileOffsets, id: &str, offset: &str) -> Result<(), Error> {
    storage.persist_offsets(&[entry(id, offset)]).await.remove(0)
}

#[tokio::test]
async fn the_file_is_readable_by_the_group_alone_and_nothing_temporary_stays() {
    let (folder, _) = in_folder();
    let path = folder.path().join("new/folder/offsets.json");
    let storage = FileOffsets::new(&path).unwrap();
    persist_one(&storage, "0", "7").await.unwrap();
    // The process's umask may take more away.
    assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o7137, 0);
    let mut names: Vec<_> = std::fs::read_dir(path.parent().unwrap())
        .unwrap()
        .map(|file| file.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    assert_eq!(names, ["offsets.json", "offsets.json.lock"]);
}

#[tokio::test]
async fn a_file_that_is_none_of_ours_is_named_and_left_as_it_is() {
    for content in ["", "not json", r#"{"format": 2, "offsets": {}}"#] {
        let (_folder, path) = in_folder();
        std::fs::write(&path, content).unwrap();
        let storage = FileOffsets::new(&path).unwrap();
        let errors = [
            persist_one(&storage, "0", "7").await.unwrap_err(),
            storage.find_latest_persisted_offset(&entry("0", "").key).await.unwrap_err(),
            storage.list("p").await.unwrap_err(),
            storage.delete(&entry("0", "").key).await.unwrap_err(),
        ];
        for error in errors {
            assert!(matches!(error, Error::Corrupt { .. }), "{error:?}");
            assert!(error.to_string().contains(path.to_str().unwrap()), "{error}");
        }
        assert_eq!(std::fs::read_to_string(&path).unwrap(), content);
    }
}

#[tokio::test]
async fn two_processes_share_a_file_without_losing_each_others_entries() {
    let (_folder, path) = in_folder();
    let writer = |id: &'static str| {
        let storage = FileOffsets::new(&path).unwrap();
        async move {
            for offset in 0..50 {
                persist_one(&storage, id, &offset.to_string()).await.unwrap();
            }
        }
    };
    tokio::join!(writer("0"), writer("1"));
    let storage = FileOffsets::new(&path).unwrap();
    assert_eq!(storage.list("p").await.unwrap(), [entry("0", "49"), entry("1", "49")]);
}

#[tokio::test]
async fn a_temporary_file_left_by_a_crash_is_no_obstacle() {
    let (folder, path) = in_folder();
    std::fs::write(folder.path().join("offsets.json.tmp"), "{\"format").unwrap();
    let storage = FileOffsets::new(&path).unwrap();
    persist_one(&storage, "0", "7").await.unwrap();
    assert_eq!(storage.list("p").await.unwrap(), [entry("0", "7")]);
}

#[tokio::test]
async fn a_link_in_the_place_of_the_temporary_file_is_not_followed() {
    let (folder, path) = in_folder();
    let victim = folder.path().join("victim");
    std::fs::write(&victim, "precious").unwrap();
    std::os::unix::fs::symlink(&victim, folder.path().join("offsets.json.tmp")).unwrap();
    let storage = FileOffsets::new(&path).unwrap();
    persist_one(&storage, "0", "7").await.unwrap();
    assert_eq!(std::fs::read_to_string(&victim).unwrap(), "precious");
}

#[tokio::test]
async fn a_process_that_keeps_the_lock_makes_the_storage_unavailable() {
    let (folder, path) = in_folder();
    let lock = std::fs::File::create(folder.path().join("offsets.json.lock")).unwrap();
    lock.lock().unwrap();
    let mut disk = Disk::new(&path).unwrap();
    disk.patience = std::time::Duration::from_millis(50);
    let storage = FileOffsets::on(disk);
    let error = persist_one(&storage, "0", "7").await.unwrap_err();
    assert!(matches!(error, Error::Unavailable { .. }), "{error:?}");
    assert!(crate::error::chain(&error).contains("another process has held it"), "{error:?}");
    drop(lock);
    persist_one(&storage, "0", "7").await.unwrap();
}

#[test]
fn a_path_that_names_no_file_is_a_fault_of_the_plan() {
    for path in ["", "/", "..", "folder/", "/folder/.."] {
        let error = FileOffsets::new(Path::new(path)).err().expect(path);
        assert!(matches!(error, Error::Configuration { .. }), "{path}: {error:?}");
    }
    for path in ["offsets.json", "./a", "/a/b"] {
        assert!(FileOffsets::new(Path::new(path)).is_ok(), "{path}");
    }
}

#[tokio::test]
async fn a_folder_in_the_place_of_the_file_is_a_fault_of_the_plan() {
    let (_folder, path) = in_folder();
    std::fs::create_dir(&path).unwrap();
    let error = persist_one(&FileOffsets::new(&path).unwrap(), "0", "7").await.unwrap_err();
    assert!(matches!(error, Error::Configuration { .. }), "{error:?}");
}

// Run by the test below, in a process that may not write files longer than 4 KiB.
#[tokio::test]
async fn child_that_writes_more_than_it_may() {
    let Some(folder) = std::env::var_os(FULL_DISK_FOLDER) else { return };
    let path = PathBuf::from(folder).join("offsets.json");
    let storage = FileOffsets::new(&path).unwrap();
    persist_one(&storage, "small", "1").await.unwrap();
    let large: Vec<_> = (0..1000).map(|id| entry(&id.to_string(), "12345678901234567890")).collect();
    for _ in 0..2 {
        for result in storage.persist_offsets(&large).await {
            let error = result.unwrap_err();
            assert!(matches!(error, Error::Unavailable { .. }), "{error:?}");
        }
    }
    // What fits is still written, and nothing that failed is taken for stored.
    persist_one(&storage, "small", "2").await.unwrap();
    persist_one(&storage, "0", "3").await.unwrap();
    assert_eq!(storage.list("p").await.unwrap(), [entry("0", "3"), entry("small", "2")]);
}

#[test]
fn a_full_disk_leaves_the_old_content_intact() {
    let (folder, path) = in_folder();
    let this = "offset::file::tests::child_that_writes_more_than_it_may";
    // The limit on file sizes makes write() itself fail halfway, as a full disk does. Units are 512 or 1,024 bytes.
    let output = std::process::Command::new("sh")
        .args(["-c", "trap '' XFSZ; ulimit -f 8; exec \"$0\" --exact --nocapture \"$1\""])
        .arg(std::env::current_exe().unwrap())
        .arg(this)
        .env(FULL_DISK_FOLDER, folder.path())
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && text.contains("1 passed"), "{text}{output:?}");
    let left = Book::parse(&std::fs::read(&path).unwrap()).unwrap();
    assert_eq!(left.of_plan("p"), [entry("0", "3"), entry("small", "2")]);
}
