//! Locks on a transaction that the caller has begun.

use latchwork_sqlx::LockedTransactionExt as _;

use crate::support::{CLUSTER, becomes, fresh_key, patient, pool, run, seen};

#[tokio::test(flavor = "multi_thread")]
async fn spawns() {
    let pool = pool(&CLUSTER.url(), 1);
    let key = fresh_key();
    let text = "SELECT 1".to_owned();
    let done = tokio::spawn(async move {
        pool.locked_transaction(key, patient(), async |tx| {
            assert_eq!(seen(key), (1, 0));
            run(tx, text.clone()).await?;
            Ok::<_, sqlx::Error>(7)
        })
        .await
    });
    assert_eq!(done.await.unwrap().unwrap(), 7);
    becomes(key, (0, 0)).await;
}
