//! How often the network is crossed.

use diesel_async::{AsyncConnection as _, AsyncPgConnection, SimpleAsyncConnection as _};
use latchwork_diesel_async::{LockedTransactionExt, XactLockExt as _};
use latchwork_harness::{Proxy, wait_until};
use tokio::task::spawn_blocking;

use crate::support::{CLUSTER, LONG, TestPool, counter, fresh_key, patient, pool, run};

/// BEGIN and the lock travel together, and COMMIT with the question whether there is something to commit: no more than
/// without a lock, once the connection knows the statement that reads the answer.
#[tokio::test]
async fn a_lock_costs_no_round_trip_of_its_own() {
    let proxy = Proxy::start(CLUSTER.endpoint()).unwrap();
    let (pool, table) = (pool(&proxy.url(), 1), counter());
    let work = format!("UPDATE {table} SET n = n + 1");
    let mut one = pool.get().await.unwrap();
    let trips = async |one: &mut AsyncPgConnection| {
        one.batch_execute("SELECT 1").await.unwrap();
        proxy.round_trips()
    };
    let locked = async |one: &mut AsyncPgConnection| {
        let work = async |tx: &mut AsyncPgConnection| run(tx, work.clone()).await;
        one.locked_transaction(fresh_key(), patient(), work).await.unwrap();
    };
    locked(&mut one).await;
    let start = trips(&mut one).await;
    one.transaction(async |tx| run(tx, work.clone()).await).await.unwrap();
    let plain = trips(&mut one).await;
    locked(&mut one).await;
    let ours = trips(&mut one).await;
    assert_eq!(ours - plain, plain - start);
    // In a transaction of one's own it is one, and one more for its first on a connection.
    let mut before = ours;
    for more in [2, 1] {
        let own = one.transaction(async |tx| {
            assert!(tx.try_xact_lock(fresh_key()).await.unwrap());
            run(tx, work.clone()).await
        });
        own.await.unwrap();
        let now = trips(&mut one).await;
        assert_eq!(now - before, plain - start + more);
        before = now;
    }
    drop(one);
    let is_back = spawn_blocking(move || wait_until(LONG, || pool.idle() == 1));
    assert!(is_back.await.unwrap());
}
