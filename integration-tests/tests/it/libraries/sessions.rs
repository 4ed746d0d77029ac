//! Locks of session scope against the libraries' transactions.

use tokio::spawn;

use super::{CLUSTER, Holding, LONG, PATIENT, becomes, every, fresh_key, in_time, is_excluded};
use crate::onlooker::{Onlooker, connect, quick};

#[tokio::test]
async fn a_lock_of_session_scope_excludes_every_librarys_transactions() {
    let url = CLUSTER.url();
    let onlooker = Onlooker::new(&url).await;
    let locks = connect(&url, quick()).await.locks();
    let libraries = every(&url);
    let key = fresh_key();
    let guard = locks.acquire(key).within(LONG).await.unwrap();
    for library in &libraries {
        is_excluded(*library, key, "a session holds it").await;
    }
    guard.release().await.unwrap();
    for library in &libraries {
        let guard = locks.acquire(key).within(LONG).await.unwrap();
        let waiting = spawn(Holding::begin(*library, key, PATIENT));
        becomes(&onlooker, key, (1, 1)).await;
        assert!(!waiting.is_finished(), "{library:?}");
        guard.release().await.unwrap();
        in_time(waiting).await.unwrap().unwrap().end().await;
    }
    locks.close().await;
}

#[tokio::test]
async fn every_librarys_transaction_excludes_locks_of_session_scope() {
    let url = CLUSTER.url();
    let onlooker = Onlooker::new(&url).await;
    let locks = connect(&url, quick()).await.locks();
    for library in every(&url) {
        let key = fresh_key();
        let holding = Holding::begin(library, key, PATIENT).await;
        assert!(locks.try_acquire(key).await.unwrap().is_none(), "{library:?}");
        let reads = locks.try_acquire(key).shared().await.unwrap();
        assert!(reads.is_none(), "{library:?}");
        let acquire = locks.acquire(key).within(LONG);
        let acquiring = spawn(acquire);
        becomes(&onlooker, key, (1, 1)).await;
        assert!(!acquiring.is_finished(), "{library:?}");
        holding.end().await;
        let guard = in_time(acquiring).await.unwrap().unwrap().unwrap();
        guard.release().await.unwrap();
    }
    locks.close().await;
}
