//! Free names.

use super::*;

// Names of the form <second>; the first candidate is second 0.
fn seconds() -> Naming {
    Naming::NextFree(Box::new(|n| BlobName::new(n.to_string())))
}

#[tokio::test]
async fn two_blobs_of_one_second_get_different_names() {
    let bench = Bench::new(store().await);
    let foreign = bytes::Bytes::from_static(b"theirs");
    bench
        .store
        .put(&blob("1"), foreign, &BlobHeaders::default(), &Metadata::new(), &Condition::None)
        .await
        .unwrap();
    let mut writers: Vec<_> = (0..3).map(|_| bench.writer_to(seconds(), NO_LIMITS)).collect();
    for (n, writer) in writers.iter_mut().enumerate() {
        write(writer, n as i64..n as i64 + 1);
    }
    let sealed = join_all(writers.iter_mut().map(|writer| bench.commit(close(writer)))).await;
    let mut names: Vec<_> = sealed.iter().map(|sealed| sealed.blob.name.to_string()).collect();
    names.sort();
    assert_eq!(names, ["0", "2", "3"], "1 was taken at the store");
    assert_eq!(content(&bench.store, &blob("1")).await.unwrap(), "theirs");
}

#[tokio::test(start_paused = true)]
async fn a_name_is_free_again_when_its_blob_is_given_up() {
    let hit = faulty(&store().await, OperationKind::Properties, |n, _| {
        (n == 0).then_some(Fault::Delay(Duration::from_secs(3600)))
    });
    let bench = Bench::new(hit.clone());
    let slow = Destination::new(CONTAINER.into(), seconds(), bench.claims.clone());
    // In the middle of the look-up.
    let look = tokio::time::timeout(Duration::from_secs(1), slow.resolve(&hit)).await;
    assert!(look.is_err());
    let second = Destination::new(CONTAINER.into(), seconds(), bench.claims.clone());
    assert_eq!(*second.resolve(&hit).await.unwrap(), blob("0"));
    // While another one holds it, and after that.
    let third = Destination::new(CONTAINER.into(), seconds(), bench.claims.clone());
    assert_eq!(*third.resolve(&hit).await.unwrap(), blob("1"));
    drop(second);
    let fourth = Destination::new(CONTAINER.into(), seconds(), bench.claims.clone());
    assert_eq!(*fourth.resolve(&hit).await.unwrap(), blob("0"));
}
