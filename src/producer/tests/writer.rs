//! One blob: blocks, failures, sealing.

use super::*;

#[tokio::test]
async fn blocks_are_cut_as_records_arrive_and_make_one_blob_in_order() {
    let bench = Bench::new(store().await);
    let mut writer = bench.writer("b", limits(100));
    write(&mut writer, 0..1000);
    let sealed = bench.commit(close(&mut writer)).await;
    assert!(sealed.blocks.len() > 20, "{} blocks", sealed.blocks.len());
    assert_eq!(content(&bench.store, &blob("b")).await.unwrap(), lines(0..1000));
    assert_eq!((sealed.records, sealed.bytes), (1000, lines(0..1000).len() as u64));
    assert_eq!(sealed.range, OffsetRange { first: Offset::ZERO, next: Offset::new(1000).unwrap() });
    for (name, value) in [
        ("feed", "f"),
        ("first_offset", "0"),
        ("last_offset", "999"),
        ("record_count", "1000"),
        ("raw_bytes", "2890"),
    ] {
        assert_eq!(sealed.metadata.get(name).map(String::as_str), Some(value), "{name}");
    }
    drop(writer);
    assert_eq!(bench.budget.used(), 0, "all memory is given back");
    assert_eq!(bench.budget.in_flight(), 0);
}

#[tokio::test(start_paused = true)]
async fn five_hundred_failures_of_staging_are_survived() {
    let inner = store().await;
    let kinds: [fn() -> store::Error; 2] = [transport, unavailable];
    let hit = faulty(&inner, OperationKind::StageBlock, move |n, _| {
        (n < 500).then(|| Fault::Before(kinds[n % 2]()))
    });
    let bench = Bench::new(hit);
    let mut writer = bench.writer("b", limits(64));
    write(&mut writer, 0..100);
    let pending = close(&mut writer);
    tokio::time::sleep(Duration::from_secs(30)).await;
    let ill = || bench.telemetry.health.reasons().iter().any(|reason| reason.subject.starts_with("store "));
    assert!(ill(), "an outage shows while it lasts");
    bench.commit(pending).await;
    assert_eq!(content(&inner, &blob("b")).await.unwrap(), lines(0..100));
    assert!(!ill(), "and not after it");
}

#[tokio::test(start_paused = true)]
async fn a_block_whose_reply_was_lost_is_repeated_under_another_id() {
    let inner = store().await;
    let hit = faulty(&inner, OperationKind::StageBlock, |n, _| (n == 0).then(|| Fault::After(transport())));
    let bench = Bench::new(hit);
    let mut writer = bench.writer("b", NO_LIMITS);
    write(&mut writer, 0..5);
    let (sealed, _claim) = close(&mut writer).sealed().await.unwrap();
    let staged = inner.staged_blocks(&blob("b"));
    assert_eq!(staged.len(), 2, "both tries have arrived");
    assert_eq!(sealed.blocks, staged[1..], "the blob names the one that was answered");
    commit_blob(&inner, &sealed, CommitId::random(), sealed.range, &bench.telemetry).await.unwrap();
    assert_eq!(content(&inner, &blob("b")).await.unwrap(), lines(0..5));
}

#[tokio::test(start_paused = true)]
async fn a_block_that_arrives_after_the_commit_changes_nothing() {
    let inner = store().await;
    let hit = faulty(&inner, OperationKind::StageBlock, |n, _| (n == 0).then(|| Fault::Late(transport())));
    let bench = Bench::new(hit);
    let mut writer = bench.writer("b", NO_LIMITS);
    write(&mut writer, 0..5);
    bench.commit(close(&mut writer)).await;
    assert_eq!(inner.deliver_late(), 1);
    assert_eq!(content(&inner, &blob("b")).await.unwrap(), lines(0..5));
}

#[tokio::test(start_paused = true)]
async fn the_middle_one_of_three_uploads_may_be_last() {
    let inner = store().await;
    let hit = inner.clone().with_faults({
        let tries = AtomicUsize::new(0);
        move |operation| {
            let middle = operation.kind == OperationKind::StageBlock
                && operation.blob.as_ref().is_some_and(|name| name.as_str() == "middle");
            (middle && tries.fetch_add(1, Ordering::SeqCst) < 20).then(|| Fault::Before(denied()))
        }
    });
    let bench = Bench::new(hit);
    let names = ["first", "middle", "last"];
    let mut pending = Vec::new();
    for (n, name) in names.into_iter().enumerate() {
        let mut writer = bench.writer(name, limits(64));
        let first = n as i64 * 100;
        write(&mut writer, first..first + 100);
        pending.push(close(&mut writer));
    }
    join_all(pending.into_iter().map(|pending| bench.commit(pending))).await;
    for (n, name) in names.into_iter().enumerate() {
        let first = n as i64 * 100;
        assert_eq!(content(&inner, &blob(name)).await.unwrap(), lines(first..first + 100), "{name}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_failure_for_good_is_told_by_the_next_check() {
    let inner = store().await;
    let hit = faulty(&inner, OperationKind::StageBlock, |n, _| (n == 1).then(|| Fault::Before(refused())));
    let bench = Bench::new(hit);
    let mut writer = bench.writer("b", limits(64));
    while bench.store.staged_blocks(&blob("b")).is_empty() {
        write(&mut writer, 0..100);
        tokio::task::yield_now().await;
    }
    tokio::time::sleep(Duration::from_millis(1)).await;
    let error = writer.check().unwrap_err();
    assert!(matches!(error, Error::Staging { .. }), "{error}");
}

#[tokio::test]
async fn close_takes_flushed_bytes_only_and_then_every_call_is_refused() {
    let bench = Bench::new(store().await);
    let mut writer = bench.writer("b", NO_LIMITS);
    write(&mut writer, 0..3);
    assert!(matches!(writer.close(), Err(Error::Unflushed { bytes: 6 })));
    // The mistake can be made good.
    write(&mut writer, 3..4);
    let pending = close(&mut writer);
    assert!(matches!(writer.write(&record(9, "x").as_ref()), Err(Error::Closed)));
    assert!(matches!(writer.flush(), Err(Error::Closed)));
    assert!(matches!(writer.close(), Err(Error::Closed)));
    bench.commit(pending).await;
    assert_eq!(content(&bench.store, &blob("b")).await.unwrap(), lines(0..4));
}

#[tokio::test]
async fn a_blob_without_records_is_never_made() {
    let bench = Bench::new(store().await);
    let mut writer = bench.writer("b", NO_LIMITS);
    writer.flush().unwrap();
    assert!(writer.close().unwrap().is_none());
    let mut blobs = OpenBlobs::new(4);
    let null = Record::default();
    let bad = blobs.write(OutputKey(0), &null.as_ref(), || Ok(bench.writer("c", NO_LIMITS)));
    assert!(matches!(bad, Err(Error::BadRecord(_))));
    assert!(blobs.is_empty() && blobs.seal_all().unwrap().is_empty());
    tokio::task::yield_now().await;
    assert!(bench.store.list(CONTAINER, "", None).await.unwrap().names.is_empty());
    assert!(bench.store.staged_blocks(&blob("c")).is_empty());
}

#[tokio::test]
async fn a_bad_record_leaves_the_blob_as_it_was() {
    let bench = Bench::new(store().await);
    let mut writer = bench.writer("b", NO_LIMITS);
    write(&mut writer, 0..2);
    assert!(matches!(writer.write(&Record::default().as_ref()), Err(Error::BadRecord(_))));
    write(&mut writer, 3..4);
    let sealed = bench.commit(close(&mut writer)).await;
    assert_eq!(sealed.records, 3);
    assert_eq!(content(&bench.store, &blob("b")).await.unwrap(), "0\n1\n3\n");
}

#[tokio::test(start_paused = true)]
async fn no_more_requests_are_under_way_than_allowed() {
    let under_way = Arc::new(AtomicUsize::new(0));
    let most = Arc::new(AtomicUsize::new(0));
    let (bench, inner) = {
        let inner = store().await;
        let (under_way, most) = (under_way.clone(), most.clone());
        let hit = faulty(&inner, OperationKind::StageBlock, move |_, _| {
            let now = under_way.fetch_add(1, Ordering::SeqCst) + 1;
            most.fetch_max(now, Ordering::SeqCst);
            let under_way = under_way.clone();
            tokio::spawn(async move {
                tokio::time::sleep(Duration::from_secs(1)).await;
                under_way.fetch_sub(1, Ordering::SeqCst);
            });
            Some(Fault::Delay(Duration::from_secs(1)))
        });
        (Bench::new(hit), inner)
    };
    let mut writer = bench.writer("b", limits(64));
    write(&mut writer, 0..1000);
    bench.commit(close(&mut writer)).await;
    let most = most.load(Ordering::SeqCst);
    assert!((8..=9).contains(&most), "{most} at once");
    assert_eq!(content(&inner, &blob("b")).await.unwrap(), lines(0..1000));
}
