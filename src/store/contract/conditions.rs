//! Conditions of writes, and rivals.

use futures::future::join_all;

use super::{Subject, checks, list};
use crate::model::BlockId;
use crate::store::{Condition, Error};

checks! {
    a_committed_blob_is_not_replaced => "a commit conditioned on absence replaces nothing",
    a_condition_on_absence_admits_one => "put conditioned on absence admits one",
    a_stale_etag_is_refused => "a stale ETag is refused",
    an_etag_of_nothing_is_refused => "an ETag of a blob that is not there is refused",
    an_unconditional_put_replaces => "an unconditional put replaces",
    of_two_writers_one_wins_whole => "of two writers of one name one wins whole",
    of_rivals_for_a_version_one_wins => "of rivals for a version one wins",
}

async fn a_committed_blob_is_not_replaced(subject: &Subject) {
    let blob = subject.blob("taken");
    let first = subject.make(&blob, b"first").await;
    let id = BlockId::new(20, 0, 0);
    subject.stage(&blob, &id, b"second").await;
    let error = subject.store.commit_block_list(&blob, &list(&[id])).await.expect_err("taken");
    assert!(matches!(error, Error::AlreadyExists { .. }), "{error:?}");
    assert_eq!(subject.content(&blob).await.as_deref(), Some(&b"first"[..]));
    assert_eq!(subject.etag(&blob).await, first.etag);
}

async fn a_condition_on_absence_admits_one(subject: &Subject) {
    let blob = subject.blob("genesis");
    let first = subject.put(&blob, "first", Condition::Absent).await.expect("put");
    let error = subject.put(&blob, "second", Condition::Absent).await.expect_err("taken");
    assert!(matches!(error, Error::AlreadyExists { .. }), "{error:?}");
    assert_eq!(subject.content(&blob).await.as_deref(), Some(&b"first"[..]));
    assert_eq!(subject.etag(&blob).await, first.etag);
}

async fn a_stale_etag_is_refused(subject: &Subject) {
    let blob = subject.blob("register");
    let first = subject.put(&blob, "1", Condition::Absent).await.expect("put").etag;
    let second = subject.put(&blob, "2", Condition::Matches(first.clone())).await.expect("put").etag;
    assert_ne!(first, second);
    let error = subject.put(&blob, "3", Condition::Matches(first)).await.expect_err("stale");
    assert!(matches!(error, Error::ConditionNotMet { .. }), "{error:?}");
    assert_eq!(subject.content(&blob).await.as_deref(), Some(&b"2"[..]));
    // The same bytes are another version.
    let third = subject.put(&blob, "2", Condition::Matches(second.clone())).await.expect("put").etag;
    assert_ne!(second, third);
    assert_eq!(subject.etag(&blob).await, third);

    let id = BlockId::new(21, 0, 0);
    subject.stage(&blob, &id, b"by blocks").await;
    let mut by_blocks = list(&[id]);
    by_blocks.condition = Condition::Matches(second);
    let error = subject.store.commit_block_list(&blob, &by_blocks).await.expect_err("stale");
    assert!(matches!(error, Error::ConditionNotMet { .. }), "{error:?}");
    by_blocks.condition = Condition::Matches(third);
    subject.store.commit_block_list(&blob, &by_blocks).await.expect("committed");
    assert_eq!(subject.content(&blob).await.as_deref(), Some(&b"by blocks"[..]));
}

async fn an_etag_of_nothing_is_refused(subject: &Subject) {
    let blob = subject.blob("gone");
    let etag = subject.put(&blob, "1", Condition::Absent).await.expect("put").etag;
    subject.store.delete(&blob).await.expect("deleted");
    let error = subject.put(&blob, "2", Condition::Matches(etag)).await.expect_err("gone");
    assert!(matches!(error, Error::ConditionNotMet { .. }), "{error:?}");
    assert_eq!(subject.content(&blob).await, None);
}

async fn an_unconditional_put_replaces(subject: &Subject) {
    let blob = subject.blob("replaced");
    let first = subject.put(&blob, "a long first content", Condition::None).await.expect("put");
    let second = subject.put(&blob, "second", Condition::None).await.expect("put");
    assert_ne!(first.etag, second.etag);
    assert_eq!(subject.content(&blob).await.as_deref(), Some(&b"second"[..]));
}

async fn of_two_writers_one_wins_whole(subject: &Subject) {
    for round in 0..5 {
        let blob = subject.blob(&format!("rivals/{round}"));
        let writers = [30_u64, 31].map(|nonce| {
            let blob = &blob;
            async move {
                let ids = [0, 1, 2].map(|number| BlockId::new(nonce, number, 0));
                for id in &ids {
                    subject.stage(blob, id, &nonce.to_le_bytes().repeat(5_000)).await;
                }
                (nonce, subject.store.commit_block_list(blob, &list(&ids)).await)
            }
        });
        let mut winners = Vec::new();
        for (nonce, result) in join_all(writers).await {
            match result {
                Ok(written) => winners.push((nonce, written.etag)),
                // Who loses may also find its blocks gone with the winner's commit.
                Err(Error::AlreadyExists { .. } | Error::UnknownBlock { .. }) => {}
                Err(error) => panic!("{error:?}"),
            }
        }
        let [(winner, etag)] = &winners[..] else { panic!("{} winners", winners.len()) };
        assert_eq!(&subject.etag(&blob).await, etag);
        let content = subject.content(&blob).await.expect("there");
        assert!(content == winner.to_le_bytes().repeat(15_000), "the blob is not the winner's alone");
    }
}

async fn of_rivals_for_a_version_one_wins(subject: &Subject) {
    let blob = subject.blob("head");
    let mut etag = subject.put(&blob, "genesis", Condition::Absent).await.expect("put").etag;
    for round in 0..5 {
        let rivals = (0..4).map(|rival| {
            let (blob, condition) = (&blob, Condition::Matches(etag.clone()));
            async move {
                let content = format!("{round}/{rival}");
                let result = subject.put(blob, &content, condition).await;
                (content, result)
            }
        });
        let mut winners = Vec::new();
        for (content, result) in join_all(rivals).await {
            match result {
                Ok(written) => winners.push((content, written.etag)),
                Err(Error::ConditionNotMet { .. }) => {}
                Err(error) => panic!("{error:?}"),
            }
        }
        let [(content, winner)] = &winners[..] else { panic!("{} winners", winners.len()) };
        assert_eq!(subject.content(&blob).await.as_deref(), Some(content.as_bytes()));
        assert_eq!(&subject.etag(&blob).await, winner);
        etag.clone_from(winner);
    }
}
