use std::sync::atomic::{AtomicU64, Ordering};

use super::*;

const CONTAINER: &str = "data";

fn blob() -> BlobRef {
    BlobRef { container: CONTAINER.into(), name: BlobName::new("a/b.avro").unwrap() }
}

fn down() -> Error {
    Error::Transport { operation: "test", resource: String::new(), source: "cut".into() }
}

fn list(id: &BlockId) -> BlockList {
    BlockList {
        blocks: vec![id.clone()],
        headers: BlobHeaders::default(),
        metadata: Metadata::new(),
        condition: Condition::Absent,
    }
}

async fn with_one_block() -> (MemoryStore, BlockId) {
    let store = MemoryStore::new();
    store.ensure_container(CONTAINER, true).await.unwrap();
    let id = BlockId::new(1, 0, 0);
    store.stage_block(&blob(), &id, &BlockContent::from(vec![1, 2, 3])).await.unwrap();
    (store, id)
}

fn on_commit(fault: impl Fn() -> Fault + Send + Sync + 'static) -> impl Fn(&Operation) -> Option<Fault> {
    move |operation| (operation.kind == OperationKind::CommitBlockList).then(&fault)
}

#[tokio::test]
async fn a_fault_before_prevents_and_a_fault_after_does_not() {
    for (fault, expected) in [(Fault::Before as fn(Error) -> Fault, None), (Fault::After, Some(3))] {
        let (store, id) = with_one_block().await;
        let faulty = store.clone().with_faults(on_commit(move || fault(down())));
        let error = faulty.commit_block_list(&blob(), &list(&id)).await.unwrap_err();
        assert!(error.is_unclear());
        assert_eq!(store.properties(&blob()).await.unwrap().map(|p| p.len), expected);
    }
}

#[tokio::test]
async fn a_late_request_acts_when_it_is_delivered() {
    let (store, id) = with_one_block().await;
    let faulty = store.clone().with_faults(on_commit(|| Fault::Late(down())));
    faulty.commit_block_list(&blob(), &list(&id)).await.unwrap_err();
    assert_eq!(store.properties(&blob()).await.unwrap(), None);
    assert_eq!(store.deliver_late(), 1);
    assert_eq!(store.properties(&blob()).await.unwrap().unwrap().len, 3);
    assert_eq!(store.deliver_late(), 0);
}

#[tokio::test(start_paused = true)]
async fn who_gives_up_prevents_a_delayed_request_but_not_one_with_a_slow_reply() {
    let patience = Duration::from_secs(1);
    for (fault, expected) in [(Fault::Delay as fn(Duration) -> Fault, false), (Fault::SlowReply, true)] {
        let (store, id) = with_one_block().await;
        let faulty = store.clone().with_faults(on_commit(move || fault(2 * patience)));
        let commit = list(&id);
        let target = blob();
        let call = faulty.commit_block_list(&target, &commit);
        assert!(tokio::time::timeout(patience, call).await.is_err());
        tokio::time::sleep(5 * patience).await;
        assert_eq!(store.properties(&blob()).await.unwrap().is_some(), expected);
    }
}

#[tokio::test]
async fn calls_are_numbered_across_clones() {
    let (store, _) = with_one_block().await;
    let seen = Arc::new(Mutex::new(Vec::new()));
    let log = seen.clone();
    let watched = store.clone().with_faults(move |operation| {
        log.lock().unwrap().push((operation.kind, operation.number));
        None
    });
    watched.properties(&blob()).await.unwrap();
    store.properties(&blob()).await.unwrap();
    watched.delete(&blob()).await.unwrap();
    assert_eq!(*seen.lock().unwrap(), [(OperationKind::Properties, 2), (OperationKind::Delete, 4)]);
}

#[tokio::test]
async fn blocks_expire_after_a_week() {
    let now = Arc::new(AtomicU64::new(0));
    let time = now.clone();
    let store = MemoryStore::new()
        .with_clock(move || SystemTime::UNIX_EPOCH + Duration::from_secs(time.load(Ordering::SeqCst)));
    store.ensure_container(CONTAINER, true).await.unwrap();
    let id = BlockId::new(1, 0, 0);
    let staged = store.stage_block(&blob(), &id, &BlockContent::from(vec![1])).await.unwrap();
    assert_eq!(staged.date, SystemTime::UNIX_EPOCH);
    now.store(7 * 24 * 3600, Ordering::SeqCst);
    let error = store.commit_block_list(&blob(), &list(&id)).await.unwrap_err();
    assert!(matches!(error, Error::UnknownBlock { .. }));
    now.store(7 * 24 * 3600 - 1, Ordering::SeqCst);
    store.commit_block_list(&blob(), &list(&id)).await.unwrap();
}

#[test]
fn slices_cross_chunks() {
    let chunks: Vec<Bytes> = ["01", "", "234", "5"].map(Bytes::from).into();
    let check = |from, max, expected: &str| assert_eq!(slice(&chunks, from, max), expected, "{from} {max}");
    check(0, 6, "012345");
    check(1, 2, "12");
    check(2, 3, "234");
    check(3, 1, "3");
    check(4, u64::MAX, "45");
    check(6, 1, "");
    check(u64::MAX, u64::MAX, "");
    check(0, 0, "");
}
