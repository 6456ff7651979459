//! What becomes of writes when the wire to ZooKeeper fails.

use std::sync::Arc;
use std::time::{Duration, Instant};

use blobfeed::offset::{Error, PersistOffset, SharedOffsets};
use tokio::task::JoinHandle;

use crate::ensemble::{Ensemble, assert_conflict, assert_unavailable, entry, persist, with_ensemble};
use crate::proxy::{Mode, Proxy};

/// Short, so that tests are; calls wait as long, and the client takes a silent connection for dead after 2/5 of it.
const SESSION: Duration = Duration::from_secs(4);

async fn through_proxy(ensemble: &Ensemble) -> (Proxy, SharedOffsets) {
    let proxy = Proxy::start(&ensemble.address).await;
    let storage = ensemble.open_at(&proxy.address.to_string(), SESSION);
    (proxy, storage)
}

fn persisting(storage: &SharedOffsets, batch: Vec<PersistOffset>) -> JoinHandle<Vec<Result<(), Error>>> {
    let storage = storage.clone();
    tokio::spawn(async move { storage.persist_offsets(&batch).await })
}

/// Persists until the storage is available again.
async fn persist_when_available(storage: &SharedOffsets, id: &str, offset: &str) -> Result<(), Error> {
    let give_up = Instant::now() + Duration::from_secs(30);
    loop {
        match persist(storage, id, offset).await {
            Err(Error::Unavailable { .. }) if Instant::now() < give_up => {}
            result => return result,
        }
    }
}

#[tokio::test]
async fn a_lost_reply_is_looked_up_and_counts_as_written() {
    with_ensemble(|ensemble| async move {
        let (proxy, storage) = through_proxy(&ensemble).await;
        persist(&storage, "0", "1").await.unwrap();
        assert_eq!(storage.find_latest_persisted_offset(&entry("1", "").key).await.unwrap(), None);
        proxy.set(Mode::SwallowReplies);
        // One that is there and one that is made.
        let write = persisting(&storage, vec![entry("0", "2"), entry("1", "1")]);
        ensemble.wait_for("0", "2").await;
        ensemble.wait_for("1", "1").await;
        proxy.set(Mode::Pass);
        proxy.cut();
        for result in write.await.unwrap() {
            result.unwrap();
        }
        for id in ["0", "1"] {
            persist(&storage, id, "3").await.unwrap();
        }
        // Each write was applied once.
        assert_eq!(ensemble.stored("0").await, Some(("3".to_owned(), 2)));
        assert_eq!(ensemble.stored("1").await, Some(("3".to_owned(), 1)));
        assert_eq!(proxy.new_sessions(), 1, "the session lives on");
    })
    .await;
}

#[tokio::test]
async fn a_reply_that_stays_lost_is_told_and_is_no_conflict_later() {
    with_ensemble(|ensemble| async move {
        let (proxy, storage) = through_proxy(&ensemble).await;
        persist(&storage, "0", "1").await.unwrap();
        proxy.set(Mode::SwallowReplies);
        let begin = Instant::now();
        assert_unavailable(&persist(&storage, "0", "2").await);
        assert!(begin.elapsed() < SESSION + Duration::from_secs(3), "{:?}", begin.elapsed());
        ensemble.wait_for("0", "2").await;
        proxy.set(Mode::Pass);
        // A newer value by now.
        persist_when_available(&storage, "0", "3").await.unwrap();
        assert_eq!(ensemble.stored("0").await, Some(("3".to_owned(), 2)));
    })
    .await;
}

#[tokio::test]
async fn a_write_whose_caller_has_left_is_no_conflict_later() {
    with_ensemble(|ensemble| async move {
        let (proxy, storage) = through_proxy(&ensemble).await;
        persist(&storage, "0", "1").await.unwrap();
        proxy.set(Mode::SwallowReplies);
        let write = persisting(&storage, vec![entry("0", "2")]);
        ensemble.wait_for("0", "2").await;
        write.abort();
        assert!(write.await.unwrap_err().is_cancelled());
        proxy.set(Mode::Pass);
        proxy.cut();
        persist_when_available(&storage, "0", "3").await.unwrap();
        assert_eq!(ensemble.stored("0").await, Some(("3".to_owned(), 2)));
    })
    .await;
}

#[tokio::test]
async fn a_server_that_stands_still_for_a_moment_delays_writes_only() {
    with_ensemble(|ensemble| async move {
        let (proxy, storage) = through_proxy(&ensemble).await;
        persist(&storage, "0", "1").await.unwrap();
        proxy.set(Mode::Hold);
        let write = persisting(&storage, vec![entry("0", "2")]);
        // The client takes the connection for dead after 1.6 s, and the session would live for 4 s.
        tokio::time::sleep(Duration::from_secs(2)).await;
        assert_eq!(ensemble.stored("0").await, Some(("1".to_owned(), 0)));
        proxy.set(Mode::Pass);
        // Whatever that call tells, no value is lost and none is taken for somebody else's.
        match write.await.unwrap().remove(0) {
            Ok(()) | Err(Error::Unavailable { .. }) => {}
            other => panic!("{other:?}"),
        }
        persist_when_available(&storage, "0", "3").await.unwrap();
        assert_eq!(ensemble.stored("0").await.unwrap().0, "3");
    })
    .await;
}

#[tokio::test]
async fn somebody_elses_write_during_an_outage_is_a_conflict() {
    with_ensemble(|ensemble| async move {
        let (proxy, storage) = through_proxy(&ensemble).await;
        persist(&storage, "0", "1").await.unwrap();
        persist(&storage, "1", "1").await.unwrap();
        proxy.set(Mode::Hold);
        let write = persisting(&storage, vec![entry("0", "2"), entry("1", "2")]);
        ensemble.raw.set_data(&ensemble.node("0"), b"50", None).await.unwrap();
        proxy.cut();
        proxy.set(Mode::Pass);
        let results = write.await.unwrap();
        assert_conflict(&results[0], Some("50"));
        assert!(results[1].is_ok(), "{results:?}");
        assert_eq!(ensemble.stored("0").await, Some(("50".to_owned(), 1)));
    })
    .await;
}

#[tokio::test]
async fn an_expired_session_is_replaced() {
    with_ensemble(|ensemble| async move {
        let (proxy, storage) = through_proxy(&ensemble).await;
        persist(&storage, "0", "1").await.unwrap();
        proxy.set(Mode::Hold);
        let silence = Instant::now();
        while silence.elapsed() < SESSION + Duration::from_secs(3) {
            assert_unavailable(&persist(&storage, "0", "2").await);
        }
        proxy.cut();
        proxy.set(Mode::Pass);
        persist_when_available(&storage, "0", "3").await.unwrap();
        assert!(proxy.new_sessions() >= 2, "the first session is over");
        assert_eq!(ensemble.stored("0").await.unwrap().0, "3");
        let found = storage.find_latest_persisted_offset(&entry("0", "").key).await.unwrap();
        assert_eq!(found.as_deref(), Some("3"));
    })
    .await;
}

#[tokio::test]
async fn two_thousand_writes_survive_cuts() {
    with_ensemble(|ensemble| async move {
        let (proxy, storage) = through_proxy(&ensemble).await;
        let proxy = Arc::new(proxy);
        let cutting = tokio::spawn({
            let proxy = proxy.clone();
            async move {
                for number in 0..15_u64 {
                    tokio::time::sleep(Duration::from_millis(40 + number * 7)).await;
                    proxy.cut();
                }
            }
        });
        let mut last = 0;
        for round in 1_u32.. {
            let mut left: Vec<_> = (0..2000).map(|id| entry(&id.to_string(), &round.to_string())).collect();
            while !left.is_empty() {
                let results = storage.persist_offsets(&left).await;
                let mut again = results.iter().map(|result| match result {
                    Ok(()) => false,
                    Err(Error::Unavailable { .. }) => true,
                    Err(other) => panic!("round {round}: {other:?}"),
                });
                left.retain(|_| again.next().unwrap());
            }
            last = round;
            if cutting.is_finished() {
                break;
            }
        }
        let stored = ensemble.open().list("plan").await.unwrap();
        assert_eq!(stored.len(), 2000);
        assert!(stored.iter().all(|entry| entry.offset == last.to_string()));
        // Nothing was written twice: version 0 is the first round.
        for id in ["0", "999", "1999"] {
            assert_eq!(ensemble.stored(id).await.unwrap().1, i32::try_from(last).unwrap() - 1);
        }
    })
    .await;
}

#[tokio::test]
async fn a_server_that_is_down_at_start_is_waited_for_by_the_caller() {
    with_ensemble(|ensemble| async move {
        let address = Proxy::start(&ensemble.address).await.address.to_string();
        let storage = ensemble.open_at(&address, SESSION);
        let key = entry("0", "").key;
        let error = storage.find_latest_persisted_offset(&key).await.unwrap_err();
        assert!(matches!(error, Error::Unavailable { .. }), "{error:?}");
        assert!(error.to_string().contains(&address), "{error}");
        assert!(storage.list("plan").await.is_err());
        let _proxy = Proxy::start_at(&address, &ensemble.address).await;
        persist_when_available(&storage, "0", "1").await.unwrap();
        assert_eq!(storage.list("plan").await.unwrap(), [entry("0", "1")]);
    })
    .await;
}

#[tokio::test]
async fn a_host_that_swallows_everything_does_not_hide_the_next_one() {
    with_ensemble(|ensemble| async move {
        let dead = Proxy::start(&ensemble.address).await;
        dead.set(Mode::Hold);
        for _ in 0..4 {
            // The client shuffles the hosts, so that half of the rounds begin with the dead one.
            let connect = format!("{},{}", dead.address, ensemble.address);
            let storage = ensemble.open_at(&connect, SESSION);
            persist_when_available(&storage, "0", "1").await.unwrap();
        }
    })
    .await;
}

#[tokio::test]
async fn closing_ends_the_session_at_once() {
    with_ensemble(|ensemble| async move {
        let (proxy, storage) = through_proxy(&ensemble).await;
        storage.close().await;
        persist(&storage, "0", "1").await.unwrap();
        assert_eq!(proxy.connections(), 1);
        storage.close().await;
        let ended = async {
            while proxy.connections() > 0 {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        tokio::time::timeout(Duration::from_secs(2), ended).await.expect("the connection is closed");
    })
    .await;
}
