//! Locks where no transaction is open.

use diesel::QueryResult;
use diesel_async::{AsyncConnection as _, AsyncPgConnection};
use latchwork_diesel_async::{XactLockError, XactLockExt as _};
use latchwork_harness::Proxy;

use crate::support::{CLUSTER, LONG, TestPool as _, fresh_key, pool, run};

#[tokio::test]
async fn without_a_transaction_nothing_is_sent() {
    let proxy = Proxy::start(CLUSTER.endpoint()).unwrap();
    let pool = pool(&proxy.url(), 1);
    let mut pooled = pool.connection().await;
    run(&mut pooled, "SELECT 1".to_owned()).await.unwrap();
    let before = proxy.bytes_to_server();
    let key = fresh_key();
    let mut refused = vec![
        pooled.try_xact_lock(key).await.map(drop),
        pooled.try_xact_lock_shared(key).await.map(drop),
        pooled.xact_lock(key).within(LONG).await,
    ];
    let direct: &mut AsyncPgConnection = &mut pooled;
    refused.push(direct.xact_lock_shared([key, fresh_key()]).without_limit().await);
    for refused in refused {
        assert!(
            matches!(refused, Err(XactLockError::NoTransaction { .. })),
            "{refused:?}"
        );
    }
    assert_eq!(proxy.bytes_to_server(), before);
    let granted = pooled.transaction(async |tx| QueryResult::Ok(tx.try_xact_lock(key).await.unwrap()));
    assert!(granted.await.unwrap());
}
