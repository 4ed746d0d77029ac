//! One library's transaction against another's.

use tokio::spawn;

use super::{CLUSTER, Holding, PATIENT, becomes, every, fresh_key, idle, in_time, is_excluded, pairs};
use crate::onlooker::Onlooker;

#[tokio::test]
async fn every_library_excludes_every_other_until_its_transaction_ends() {
    let url = CLUSTER.url();
    let onlooker = Onlooker::new(&url).await;
    for (one, other) in pairs(&url) {
        let key = fresh_key();
        let holding = Holding::begin(one, key, PATIENT).await;
        becomes(&onlooker, key, (1, 0)).await;
        is_excluded(other, key, &format!("{one:?} holds it")).await;
        is_excluded(other, key, &format!("{one:?} holds it still")).await;
        holding.end().await;
        assert!(other.tried(key.into(), idle()).await.unwrap(), "{one:?} {other:?}");
        becomes(&onlooker, key, (0, 0)).await;
    }
}

#[tokio::test]
async fn who_waits_has_the_lock_once_the_others_transaction_ends() {
    let url = CLUSTER.url();
    let onlooker = Onlooker::new(&url).await;
    for (one, other) in pairs(&url) {
        for options in [PATIENT, PATIENT.shared()] {
            let key = fresh_key();
            let holding = Holding::begin(one, key, PATIENT).await;
            let waiting = spawn(Holding::begin(other, key, options));
            becomes(&onlooker, key, (1, 1)).await;
            assert!(!waiting.is_finished(), "{one:?} {other:?}");
            holding.end().await;
            let has = in_time(waiting).await.unwrap().unwrap();
            becomes(&onlooker, key, (1, 0)).await;
            has.end().await;
            becomes(&onlooker, key, (0, 0)).await;
        }
    }
}

#[tokio::test]
async fn shared_locks_go_together_and_keep_every_librarys_exclusive_ones_out() {
    let url = CLUSTER.url();
    let onlooker = Onlooker::new(&url).await;
    for (one, other) in pairs(&url) {
        let key = fresh_key();
        let reader = Holding::begin(one, key, PATIENT.shared()).await;
        let beside = Holding::begin(other, key, PATIENT.shared()).await;
        becomes(&onlooker, key, (2, 0)).await;
        for writer in every(&url) {
            let tried = writer.tried(key.into(), super::never()).await.unwrap();
            assert!(!tried, "{writer:?} beside {one:?} and {other:?}");
        }
        reader.end().await;
        assert!(
            !one.tried(key.into(), super::never()).await.unwrap(),
            "{one:?} {other:?}"
        );
        beside.end().await;
        assert!(one.tried(key.into(), idle()).await.unwrap(), "{one:?} {other:?}");
    }
}

#[tokio::test]
async fn of_several_keys_each_excludes_and_none_is_kept_by_who_did_not_get_all() {
    let url = CLUSTER.url();
    let onlooker = Onlooker::new(&url).await;
    for (one, other) in pairs(&url) {
        let (first, taken, last) = (fresh_key(), fresh_key(), fresh_key());
        let holding = Holding::begin(one, [taken, last], PATIENT).await;
        is_excluded(other, taken, "one of two").await;
        is_excluded(other, last, "the other of two").await;
        let all = [first, taken, last];
        assert!(!other.tried(all.into(), super::never()).await.unwrap());
        let late = other.locked(all.into(), super::AT_ONCE, super::never()).await;
        assert!(late.unwrap_err().is_timeout());
        becomes(&onlooker, first, (0, 0)).await;
        holding.end().await;
        assert!(other.tried(all.into(), idle()).await.unwrap(), "{one:?} {other:?}");
    }
}
