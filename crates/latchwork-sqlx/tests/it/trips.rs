//! How often the network is crossed.

use latchwork_harness::{Proxy, wait_until};
use latchwork_sqlx::LockedTransactionExt as _;
use tokio::task::spawn_blocking;

use crate::support::{CLUSTER, LONG, counter, fresh_key, patient, pool, run};

/// One for the lock, which plain sqlx has not; what else there is to ask travels along.
#[tokio::test]
async fn a_lock_costs_one_round_trip() {
    let proxy = Proxy::start(CLUSTER.endpoint()).unwrap();
    let (pool, table) = (pool(&proxy.url(), 1), counter());
    let work = format!("UPDATE {table} SET n = n + 1");
    let trips = async || {
        let watched = pool.clone();
        let is_back = spawn_blocking(move || wait_until(LONG, || watched.num_idle() == 1));
        assert!(is_back.await.unwrap());
        proxy.round_trips()
    };
    drop(pool.acquire().await.unwrap());
    let start = trips().await;
    let mut plain = pool.begin().await.unwrap();
    run(&mut plain, work.clone()).await.unwrap();
    plain.commit().await.unwrap();
    let plain = trips().await;
    let locked = pool.locked_transaction(fresh_key(), patient(), async |tx| run(tx, work.clone()).await);
    locked.await.unwrap();
    assert_eq!(trips().await - plain, plain - start + 1);
}
