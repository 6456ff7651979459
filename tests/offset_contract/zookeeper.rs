//! What only ZooKeeper's storage does: nodes, versions, requests for many entries.

use std::time::{Duration, Instant};

use blobfeed::model::FeedPartitionKey;
use blobfeed::offset::{Error, PersistOffset, contract};
use futures::future::join_all;
use zookeeper_client::{Acls, CreateMode};

use crate::ensemble::{OPEN, assert_conflict, entry, persist, with_ensemble};
use crate::proxy::Proxy;

fn two_thousand(offset: &str) -> Vec<PersistOffset> {
    (0..2000).map(|id| entry(&format!("topic-{id}.0"), offset)).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn zookeeper_keeps_the_contract() {
    with_ensemble(|ensemble| async move {
        contract::run(|| ensemble.open(), "plan").await;
    })
    .await;
}

#[tokio::test]
async fn a_node_has_the_parents_path_and_holds_the_offset_and_nothing_else() {
    with_ensemble(|ensemble| async move {
        let key = |plan: &str, feed: &str, id: &str| FeedPartitionKey {
            plan: plan.into(),
            feed: feed.into(),
            id: id.into(),
        };
        let cases = [
            (key("wikipedia", "edits", "17"), "wikipedia-edits-17"),
            (key("a-b", "50%", "t.o_p-ic.3"), "a%2Db-50%25-t.o_p-ic.3"),
            (key("a/b", "c", "0"), "a%2Fb-c-0"),
        ];
        let storage = ensemble.open();
        for (number, (key, name)) in cases.iter().enumerate() {
            let offset = format!("{number}42");
            let entry = PersistOffset { key: key.clone(), offset: offset.clone() };
            storage.persist_offsets(&[entry]).await.remove(0).unwrap();
            let (data, stat) = ensemble.raw.get_data(&format!("{}/{name}", ensemble.root)).await.unwrap();
            assert_eq!(data, offset.as_bytes());
            assert_eq!((stat.version, stat.ephemeral_owner, stat.num_children), (0, 0, 0));
        }
        let mut names = ensemble.raw.list_children(&ensemble.root).await.unwrap();
        names.sort();
        assert_eq!(names, ["a%2Db-50%25-t.o_p-ic.3", "a%2Fb-c-0", "wikipedia-edits-17"]);
    })
    .await;
}

#[tokio::test]
async fn an_offset_that_the_parent_wrote_is_read() {
    with_ensemble(|ensemble| async move {
        ensemble.raw.mkdir(&ensemble.root, &OPEN).await.unwrap();
        ensemble.raw.create(&ensemble.node("0"), b"123", &OPEN).await.unwrap();
        // Nodes of others are left alone.
        ensemble.raw.create(&format!("{}/lock", ensemble.root), b"\xff", &OPEN).await.unwrap();
        let storage = ensemble.open();
        assert_eq!(storage.list("plan").await.unwrap(), [entry("0", "123")]);
        let found = storage.find_latest_persisted_offset(&entry("0", "").key).await.unwrap();
        assert_eq!(found.as_deref(), Some("123"));
        persist(&storage, "0", "124").await.unwrap();
        assert_eq!(ensemble.stored("0").await, Some(("124".to_owned(), 1)));
    })
    .await;
}

#[tokio::test]
async fn a_chroot_is_made_with_the_root() {
    with_ensemble(|ensemble| async move {
        let connect = format!("{}{}/ch/root", ensemble.address, ensemble.root);
        let storage = ensemble.open_at(&connect, Duration::from_secs(10));
        persist(&storage, "0", "1").await.unwrap();
        let node = format!("{0}/ch/root{0}/plan-feed-0", ensemble.root);
        assert_eq!(ensemble.raw.get_data(&node).await.unwrap().0, b"1");
    })
    .await;
}

#[tokio::test]
async fn one_of_two_thousand_is_newer_and_the_other_1999_are_persisted() {
    with_ensemble(|ensemble| async move {
        let proxy = Proxy::start(&ensemble.address).await;
        let storage = ensemble.open_at(&proxy.address.to_string(), Duration::from_secs(10));
        assert!(storage.persist_offsets(&two_thousand("1")).await.iter().all(Result::is_ok));
        let newer = 777;
        let node = ensemble.node(&format!("topic-{newer}.0"));
        ensemble.raw.set_data(&node, b"99", None).await.unwrap();

        proxy.take_multis();
        let results = storage.persist_offsets(&two_thousand("2")).await;

        assert_eq!(proxy.take_multis(), 5, "four, and one of them without the entry that made it fail");
        assert_conflict(&results[newer], Some("99"));
        assert_eq!(results.iter().filter(|result| result.is_ok()).count(), 1999);
        let stored = ensemble.open().list("plan").await.unwrap();
        assert_eq!(stored.iter().filter(|entry| entry.offset == "2").count(), 1999);
        assert_eq!(stored.iter().filter(|entry| entry.offset == "99").count(), 1);
    })
    .await;
}

#[tokio::test]
async fn many_conflicts_cost_few_requests() {
    with_ensemble(|ensemble| async move {
        let proxy = Proxy::start(&ensemble.address).await;
        let storage = ensemble.open_at(&proxy.address.to_string(), Duration::from_secs(10));
        assert!(storage.persist_offsets(&two_thousand("1")).await.iter().all(Result::is_ok));
        // Every second one was moved, removed in one case of three.
        let change = |id: usize| {
            let ensemble = &ensemble;
            async move {
                let node = ensemble.node(&format!("topic-{id}.0"));
                match id % 3 {
                    0 => ensemble.raw.delete(&node, None).await.unwrap(),
                    _ => drop(ensemble.raw.set_data(&node, b"99", None).await.unwrap()),
                }
            }
        };
        join_all((0..2000).step_by(2).map(change)).await;

        proxy.take_multis();
        let results = storage.persist_offsets(&two_thousand("2")).await;

        assert_eq!(proxy.take_multis(), 8, "four, and each of them without the entries that were moved");
        for (id, result) in results.iter().enumerate() {
            match (id % 2, id % 3) {
                (1, _) => assert!(result.is_ok(), "{id}: {result:?}"),
                (_, 0) => assert_conflict(result, None),
                _ => assert_conflict(result, Some("99")),
            }
        }
    })
    .await;
}

#[tokio::test]
async fn another_client_removes_a_node_meanwhile() {
    with_ensemble(|ensemble| async move {
        let storage = ensemble.open();
        persist(&storage, "0", "1").await.unwrap();
        ensemble.raw.delete(&ensemble.node("0"), None).await.unwrap();
        let results = storage.persist_offsets(&[entry("1", "2"), entry("0", "2")]).await;
        assert!(results[0].is_ok(), "{results:?}");
        assert_conflict(&results[1], None);
        assert_eq!(storage.find_latest_persisted_offset(&entry("0", "").key).await.unwrap(), None);
        persist(&storage, "0", "2").await.unwrap();
        assert_eq!(ensemble.stored("0").await, Some(("2".to_owned(), 0)));
    })
    .await;
}

#[tokio::test]
async fn another_client_removes_the_root_meanwhile() {
    with_ensemble(|ensemble| async move {
        let storage = ensemble.open();
        let key = entry("0", "").key;
        assert_eq!(storage.find_latest_persisted_offset(&key).await.unwrap(), None);
        persist(&storage, "1", "1").await.unwrap();
        ensemble.raw.delete(&ensemble.node("1"), None).await.unwrap();
        ensemble.raw.delete(&ensemble.root, None).await.unwrap();
        let results = storage.persist_offsets(&[entry("0", "1"), entry("1", "2")]).await;
        assert!(results[0].is_ok(), "{results:?}");
        assert_conflict(&results[1], None);
    })
    .await;
}

#[tokio::test]
async fn a_node_that_holds_no_offset_is_named_and_keeps_no_other_back() {
    let too_long = vec![b'9'; 1025];
    for data in [b"\xff\xfe".as_slice(), &too_long] {
        with_ensemble(|ensemble| async move {
            ensemble.raw.mkdir(&ensemble.root, &OPEN).await.unwrap();
            ensemble.raw.create(&ensemble.node("0"), data, &OPEN).await.unwrap();
            let storage = ensemble.open();
            let results = storage.persist_offsets(&[entry("0", "1"), entry("1", "1")]).await;
            assert!(results[1].is_ok(), "{results:?}");
            let errors = [
                results.into_iter().next().unwrap().unwrap_err(),
                storage.find_latest_persisted_offset(&entry("0", "").key).await.unwrap_err(),
                storage.list("plan").await.unwrap_err(),
            ];
            for error in errors {
                assert!(matches!(error, Error::Corrupt { .. }), "{error:?}");
                assert!(error.to_string().contains(&ensemble.node("0")), "{error}");
            }
            assert_eq!(ensemble.raw.get_data(&ensemble.node("0")).await.unwrap().0, data);
        })
        .await;
    }
}

#[tokio::test]
async fn a_node_that_may_not_be_written_says_what_is_missing_and_keeps_no_other_back() {
    with_ensemble(|ensemble| async move {
        let read_only = CreateMode::Persistent.with_acls(Acls::anyone_read());
        ensemble.raw.mkdir(&ensemble.root, &OPEN).await.unwrap();
        ensemble.raw.create(&ensemble.node("1"), b"7", &read_only).await.unwrap();
        let storage = ensemble.open();
        let results = storage.persist_offsets(&[entry("0", "1"), entry("1", "1"), entry("2", "1")]).await;
        let Err(error @ Error::Denied { .. }) = &results[1] else { panic!("{results:?}") };
        assert!(error.to_string().contains("write"), "{error}");
        assert!(results[0].is_ok() && results[2].is_ok(), "{results:?}");
        // Not a conflict afterwards: what was refused did not happen.
        let results = storage.persist_offsets(&[entry("1", "2")]).await;
        assert!(matches!(results[0], Err(Error::Denied { .. })), "{results:?}");
    })
    .await;
}

#[tokio::test]
async fn a_key_twice_in_a_batch_does_not_hang() {
    with_ensemble(|ensemble| async move {
        let storage = ensemble.open();
        let results = storage.persist_offsets(&[entry("0", "1"), entry("1", "1"), entry("0", "2")]).await;
        assert!(results.iter().all(Result::is_ok), "{results:?}");
        assert_eq!(ensemble.stored("0").await, Some(("2".to_owned(), 1)));
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn two_thousand_partitions_fit_into_a_second_with_room_to_spare() {
    const ROUNDS: u32 = 20;
    with_ensemble(|ensemble| async move {
        let proxy = Proxy::start(&ensemble.address).await;
        let storage = ensemble.open_at(&proxy.address.to_string(), Duration::from_secs(10));
        let begin = Instant::now();
        assert!(storage.persist_offsets(&two_thousand("0")).await.iter().all(Result::is_ok));
        println!("2,000 partitions, first round with reading and creating: {:?}", begin.elapsed());
        proxy.take_multis();
        let begin = Instant::now();
        for round in 1..=ROUNDS {
            let results = storage.persist_offsets(&two_thousand(&format!("{round}000000"))).await;
            assert!(results.iter().all(Result::is_ok));
        }
        let round = begin.elapsed() / ROUNDS;
        assert_eq!(proxy.take_multis(), 4 * ROUNDS as usize);
        println!("2,000 partitions, each later round: {round:?}");
        assert!(round < Duration::from_secs(1), "a round of 2,000 partitions takes {round:?}");
    })
    .await;
}
