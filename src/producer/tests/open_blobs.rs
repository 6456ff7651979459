//! Which blob a record goes to, and when it is full.

use super::*;

// Writes 100 records of one byte to one key; gives the records of each blob.
async fn blob_sizes(limits: BlobLimits) -> Vec<u64> {
    let bench = Bench::new(store().await);
    let mut blobs = OpenBlobs::new(4);
    let names = AtomicUsize::new(0);
    for offset in 0..100 {
        let open = || {
            let name = names.fetch_add(1, Ordering::SeqCst);
            Ok(bench.writer(&format!("b{name}"), limits))
        };
        blobs.write(OutputKey(0), &record(offset, "x").as_ref(), open).unwrap();
    }
    let pending = blobs.seal_all().unwrap();
    let mut sizes = Vec::new();
    let mut next = Offset::ZERO;
    for pending in pending {
        let sealed = bench.commit(pending).await;
        assert_eq!(sealed.range.first, next, "blobs follow each other");
        assert_eq!(sealed.range.len(), sealed.records);
        next = sealed.range.next;
        assert!(sealed.blocks.len() <= limits.blocks as usize);
        sizes.push(sealed.records);
    }
    sizes
}

#[tokio::test]
async fn a_blob_is_sealed_by_bytes_records_or_blocks() {
    let check = async |limits, expected: &[u64]| assert_eq!(blob_sizes(limits).await, expected, "{limits:?}");
    check(NO_LIMITS, &[100]).await;
    check(BlobLimits { blob_bytes: 80, ..NO_LIMITS }, &[40, 40, 20]).await;
    check(BlobLimits { records: 33, ..NO_LIMITS }, &[33, 33, 33, 1]).await;
    // The encoder gives out 64 bytes at a time, each of which is a block here; the third block is kept for the rest.
    check(BlobLimits { block_bytes: 64, blocks: 3, ..NO_LIMITS }, &[64, 36]).await;
    check(BlobLimits { block_bytes: 1, blocks: 2, records: 1, ..NO_LIMITS }, &[1; 100]).await;
}

#[tokio::test]
async fn interleaved_keys_do_not_make_tiny_blobs() {
    let bench = Bench::new(store().await);
    let mut blobs = OpenBlobs::new(3);
    for offset in 0..900 {
        let key = (offset % 3) as u32;
        let open = || Ok(bench.writer(&format!("k{key}"), limits(256)));
        blobs.write(OutputKey(key), &record(offset, &offset.to_string()).as_ref(), open).unwrap();
    }
    assert_eq!(blobs.open_count(), 3);
    assert_eq!(blobs.records(), 900);
    let sealed = join_all(blobs.seal_all().unwrap().into_iter().map(|pending| bench.commit(pending))).await;
    assert_eq!(sealed.iter().map(|blob| blob.records).collect::<Vec<_>>(), [300; 3]);
    let every_third: String = (0..300).map(|n| format!("{}\n", n * 3 + 1)).collect();
    assert_eq!(content(&bench.store, &blob("k1")).await.unwrap(), every_third);
}

#[tokio::test]
async fn beyond_the_number_of_open_blobs_the_one_unused_longest_is_sealed() {
    let bench = Bench::new(store().await);
    let mut blobs = OpenBlobs::new(2);
    let mut send = |offset: i64, key: u32| {
        let open = || Ok(bench.writer(&format!("{key}-{offset}"), NO_LIMITS));
        blobs.write(OutputKey(key), &record(offset, "x").as_ref(), open).unwrap();
        assert!(blobs.open_count() <= 2);
    };
    for (offset, key) in [(0, 1), (1, 2), (2, 1), (3, 3), (4, 1), (5, 2)] {
        send(offset, key);
    }
    let pending = blobs.seal_all().unwrap();
    let mut names: Vec<_> = pending.iter().map(PendingBlob::label).collect();
    names.sort();
    assert_eq!(names, ["data/1-0", "data/2-1", "data/2-5", "data/3-3"]);
}
