//! Several keys at once, and statements that are transactions of their own.

use std::sync::Arc;

use latchwork_core::{
    Key, Mode,
    xact::{KeySet, XactLockError, XactRequest, XactWait},
};
use latchwork_harness::Cluster;
use latchwork_postgres::transaction::XactLockExt as _;
use tokio_postgres::{Client, SimpleQueryMessage};

use super::{CLUSTER, LONG, client, fresh_key, is_usable};

#[tokio::test]
async fn readers_share_several_keys_and_no_key_is_nothing_to_wait_for() {
    let (mut one, mut two) = (client(&CLUSTER.url()).await, client(&CLUSTER.url()).await);
    let keys = [fresh_key(), fresh_key()];
    let (first, second) = (one.transaction().await.unwrap(), two.transaction().await.unwrap());
    assert!(first.try_xact_lock_shared(keys).await.unwrap());
    second.xact_lock_shared(keys).within(LONG).await.unwrap();
    assert!(!second.try_xact_lock(keys).await.unwrap());
    assert!(second.try_xact_lock([]).await.unwrap());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn transactions_that_name_the_same_keys_in_any_order_never_deadlock() {
    let cluster = Arc::new(Cluster::start().unwrap());
    let keys: Vec<Key> = (0..4).map(Key::bigint).collect();
    let workers = (0..8).map(|_| {
        let (cluster, mut keys) = (Arc::clone(&cluster), keys.clone());
        tokio::spawn(async move {
            let mut client = client(&cluster.url()).await;
            for _ in 0..100 {
                fastrand::shuffle(&mut keys);
                let transaction = client.transaction().await.unwrap();
                transaction.xact_lock(&keys[..3]).within(LONG).await.unwrap();
                transaction.commit().await.unwrap();
            }
        })
    });
    for worker in workers.collect::<Vec<_>>() {
        worker.await.unwrap();
    }
    let deadlocks = "SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()";
    assert_eq!(cluster.psql(deadlocks).unwrap(), "0");
    assert_eq!(cluster.log().matches("ERROR").count(), 0);
}

/// What an adapter would be told that sends the statements on a connection as it is.
async fn sent_alone(client: &Client, mut wait: XactWait) -> Result<bool, XactLockError> {
    while let Some(statement) = wait.next()? {
        let rows = client.simple_query(&statement.joined()).await.unwrap();
        let answer = rows.iter().find_map(|message| match message {
            SimpleQueryMessage::Row(row) => row.get(0),
            _ => None,
        });
        wait.answered(answer.unwrap())?;
    }
    Ok(wait.is_granted())
}

#[tokio::test]
async fn without_a_transaction_nothing_is_locked_for_no_time() {
    let mut client = client(&CLUSTER.url()).await;
    let (one, other) = (fresh_key(), fresh_key());
    for keys in [KeySet::from(one), KeySet::from([one, other])] {
        for mode in [Mode::Exclusive, Mode::Shared] {
            let request = XactRequest::new(keys.clone()).with_mode(mode);
            for wait in [
                XactWait::attempt(request.clone()),
                XactWait::within(request.allow_stale_snapshot(), Some(LONG)),
            ] {
                let refused = sent_alone(&client, wait).await.unwrap_err();
                assert!(matches!(refused, XactLockError::NoTransaction { .. }), "{refused:?}");
            }
        }
    }
    let transaction = client.transaction().await.unwrap();
    assert!(transaction.try_xact_lock([one, other]).await.unwrap());
    assert!(is_usable(&transaction).await);
}
