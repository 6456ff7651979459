//! The life of sources and of the producer; the memory that sources share.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::time::Duration;

use tokio::time::timeout;

use super::producer::{all, envelope, lines, producer, producer_with, send};
use crate::commit::{Error, Flushed};
use crate::producer::BlobLimits;
use crate::producer::tests::{NO_LIMITS, faulty, refused, store, unavailable};
use crate::store::{Fault, OperationKind};

#[tokio::test]
async fn a_source_is_registered_once_and_before_it_sends() {
    let producer = producer(&store().await);
    let misuse = |result: Result<(), Error>, word: &str| {
        let error = result.unwrap_err();
        assert!(matches!(error, Error::Source { .. }), "{error}");
        assert!(error.to_string().contains(word), "{error}");
    };
    misuse(producer.register("a"), "already");
    misuse(producer.register(""), "empty");
    misuse(producer.send("c", &envelope("s", 0, "x")).await, "not registered");
    misuse(producer.flush("c").await.map(drop), "not registered");
    producer.register("any text: ä/\n").unwrap();
}

#[tokio::test]
async fn a_stop_flushes_every_source_and_then_every_call_is_refused() {
    let store = store().await;
    let producer = producer(&store);
    send(&producer, "a", 0..3).await;
    send(&producer, "b", 3..5).await;
    assert_eq!(producer.stop().await.unwrap().records(), 5);
    assert_eq!(all(&store, "").await, lines(0..5));
    let stopped = |result: Result<(), Error>| assert!(matches!(result, Err(Error::Stopped)));
    stopped(producer.register("c"));
    stopped(producer.send("a", &envelope("s", 0, "x")).await);
    stopped(producer.flush("a").await.map(drop));
    stopped(producer.stop().await.map(drop));
}

#[tokio::test(start_paused = true)]
async fn a_source_that_fails_at_the_stop_does_not_keep_the_others_from_being_flushed() {
    let inner = store().await;
    let hit = inner.clone().with_faults(|operation| {
        let of_a = operation.blob.as_ref().is_some_and(|name| name.as_str().starts_with("a/"));
        (of_a && operation.kind == OperationKind::CommitBlockList).then(|| Fault::Before(refused()))
    });
    let producer = producer(&hit);
    send(&producer, "a", 0..3).await;
    send(&producer, "b", 0..3).await;
    let error = producer.stop().await.unwrap_err();
    assert!(
        matches!(&error, Error::Stop { name, source } if name == "a" && matches!(**source, Error::Store { .. }))
    );
    assert_eq!(all(&inner, "").await, lines(0..3));
    assert!(matches!(producer.stop().await, Err(Error::Stopped)));
}

#[tokio::test(start_paused = true)]
async fn a_stop_that_was_given_up_can_be_repeated() {
    let inner = store().await;
    let hit =
        faulty(&inner, OperationKind::CommitBlockList, |n, _| (n < 20).then(|| Fault::Before(unavailable())));
    let producer = Arc::new(producer(&hit));
    send(&producer, "a", 0..3).await;
    assert!(timeout(Duration::from_secs(5), producer.stop()).await.is_err());
    assert!(matches!(producer.send("a", &envelope("s", 0, "x")).await, Err(Error::Stopped)));
    assert_eq!(producer.stop().await.unwrap().records(), 3);
    assert_eq!(all(&inner, "").await, lines(0..3));
}

#[tokio::test(start_paused = true)]
async fn a_send_that_waits_behind_the_stop_is_refused_and_not_lost_in_silence() {
    let inner = store().await;
    let hit =
        faulty(&inner, OperationKind::CommitBlockList, |n, _| (n < 5).then(|| Fault::Before(unavailable())));
    let producer = Arc::new(producer(&hit));
    send(&producer, "a", 0..3).await;
    let spawn = |what: &'static str| {
        let producer = producer.clone();
        tokio::spawn(async move {
            match what {
                "flush" => producer.flush("a").await.map(|flushed| flushed.records()),
                "stop" => producer.stop().await.map(|flushed| flushed.records()),
                _ => producer.send("a", &envelope("a", 3, "x3")).await.map(|()| 0),
            }
        })
    };
    // The flush holds the source; the stop waits for it, and the send for both.
    let mut tasks = Vec::new();
    for what in ["flush", "stop", "send"] {
        tasks.push(spawn(what));
        tokio::task::yield_now().await;
    }
    let send = tasks.remove(2).await.unwrap();
    assert!(matches!(send, Err(Error::Stopped)), "{send:?}");
    for task in tasks {
        task.await.unwrap().unwrap();
    }
    assert_eq!(all(&inner, "").await, lines(0..3));
}

#[tokio::test]
async fn calls_for_one_source_from_many_tasks_lose_nothing() {
    let store = store().await;
    let producer = Arc::new(producer(&store));
    let mut tasks = Vec::new();
    for task in 0..8_i64 {
        let producer = producer.clone();
        tasks.push(tokio::spawn(async move {
            let mut flushed = 0;
            for n in 0..100 {
                producer.send("a", &envelope("s", task * 100 + n, "x")).await.unwrap();
                if n % 30 == task {
                    flushed += producer.flush("a").await.unwrap().records();
                }
                tokio::task::yield_now().await;
            }
            flushed
        }));
    }
    let mut flushed = 0;
    for task in tasks {
        flushed += task.await.unwrap();
    }
    flushed += producer.stop().await.unwrap().records();
    assert_eq!(flushed, 800);
    assert_eq!(all(&store, "").await.lines().count(), 800);
}

const MEMORY: usize = 1 << 20;

#[tokio::test(start_paused = true)]
async fn a_send_waits_while_memory_is_used_up_and_goes_on_when_the_store_does() {
    let inner = store().await;
    let staged = Arc::new(AtomicUsize::new(0));
    let hit = {
        let staged = staged.clone();
        faulty(&inner, OperationKind::StageBlock, move |_, _| {
            staged.fetch_add(1, SeqCst);
            Some(Fault::Delay(Duration::from_secs(10)))
        })
    };
    let producer = Arc::new(producer_with(&hit, NO_LIMITS, MEMORY));
    producer.register("a").unwrap();
    let text = "x".repeat(10_000);
    let sender = tokio::spawn({
        let (producer, text) = (producer.clone(), text.clone());
        async move {
            for offset in 0..500 {
                producer.send("a", &envelope("a", offset, &text)).await.unwrap();
            }
        }
    });
    // As much as fits, and no more, before the first block is staged.
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert!(!sender.is_finished());
    assert!(staged.load(SeqCst) >= 1, "its own tail was cut early");
    assert!(producer.budget().peak() <= MEMORY + 3 * crate::budget::CHUNK, "{:?}", producer.budget().peak());
    sender.await.unwrap();
    assert!(producer.budget().peak() <= MEMORY + 3 * crate::budget::CHUNK, "{:?}", producer.budget().peak());
    assert_eq!(producer.flush("a").await.unwrap().records(), 500);
    assert_eq!(all(&inner, "").await.len(), 500 * 10_001);
    assert_eq!(producer.budget().used(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_record_larger_than_the_memory_passes_alone() {
    let inner = store().await;
    let hit = faulty(&inner, OperationKind::StageBlock, |_, _| Some(Fault::Delay(Duration::from_secs(1))));
    let producer = producer_with(&hit, NO_LIMITS, MEMORY);
    producer.register("a").unwrap();
    let big = "x".repeat(3 * MEMORY);
    for (offset, value) in ["x", &big, "x", &big, &big].into_iter().enumerate() {
        let record = envelope("a", offset as i64, value);
        timeout(Duration::from_secs(60), producer.send("a", &record)).await.expect("no dead-lock").unwrap();
    }
    assert!(producer.budget().peak() < 2 * big.len(), "one large record at a time");
    assert_eq!(producer.flush("a").await.unwrap().records(), 5);
    assert_eq!(all(&inner, "").await.len(), 3 * (big.len() + 1) + 4);
}

#[tokio::test(start_paused = true)]
async fn a_large_record_is_not_overtaken_for_ever() {
    let inner = store().await;
    let hit =
        faulty(&inner, OperationKind::StageBlock, |_, _| Some(Fault::Delay(Duration::from_millis(100))));
    let producer = Arc::new(producer_with(&hit, BlobLimits { block_bytes: 100_000, ..NO_LIMITS }, MEMORY));
    let mut busy = Vec::new();
    for source in ["a", "b", "c"] {
        producer.register(source).unwrap();
    }
    for source in ["a", "b"] {
        let producer = producer.clone();
        busy.push(tokio::spawn(async move {
            for offset in 0.. {
                producer.send(source, &envelope(source, offset, &"x".repeat(20_000))).await.unwrap();
            }
        }));
    }
    tokio::time::sleep(Duration::from_secs(5)).await;
    let big = envelope("c", 0, &"x".repeat(MEMORY - 50_000));
    timeout(Duration::from_secs(60), producer.send("c", &big)).await.expect("its turn comes").unwrap();
    assert!(busy.iter().all(|task| !task.is_finished()), "the others were sending all the time");
    busy.iter().for_each(|task| task.abort());
}

#[tokio::test(start_paused = true)]
async fn memory_that_an_idle_source_holds_is_freed_for_another() {
    let store = store().await;
    let producer = producer_with(&store, NO_LIMITS, MEMORY);
    for source in ["a", "b"] {
        producer.register(source).unwrap();
    }
    let text = "x".repeat(50_000);
    // One task that sends to both: if the second waited for a flush of the first, it would wait for ever.
    for (source, count) in [("a", 15), ("b", 60), ("a", 15)] {
        for offset in 0..count {
            let record = envelope(source, offset, &text);
            timeout(Duration::from_secs(60), producer.send(source, &record))
                .await
                .expect("no dead-lock")
                .unwrap();
        }
    }
    assert!(producer.budget().peak() <= MEMORY + 3 * crate::budget::CHUNK, "{:?}", producer.budget().peak());
    assert_eq!(producer.stop().await.unwrap().records(), 90);
}

#[tokio::test(start_paused = true)]
async fn a_send_that_was_given_up_while_waiting_has_not_taken_the_record() {
    let inner = store().await;
    let hit =
        faulty(&inner, OperationKind::StageBlock, |n, _| (n < 30).then(|| Fault::Before(unavailable())));
    let producer = producer_with(&hit, NO_LIMITS, MEMORY);
    producer.register("a").unwrap();
    let mut sent = 0;
    let text = "x".repeat(100_000);
    let waiting = loop {
        let record = envelope("a", sent, &text);
        match timeout(Duration::from_millis(10), producer.send("a", &record)).await {
            Ok(result) => result.unwrap(),
            Err(_) => break record,
        }
        sent += 1;
        assert!(sent < 100, "memory is limited");
    };
    producer.send("a", &waiting).await.unwrap();
    assert_eq!(producer.flush("a").await.unwrap().records(), sent as u64 + 1);
    assert_eq!(producer.flush("a").await.unwrap(), Flushed::default());
}
