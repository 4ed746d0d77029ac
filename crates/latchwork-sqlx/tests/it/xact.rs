//! Locks where no transaction is open.

use latchwork_harness::Proxy;
use latchwork_sqlx::{XactLockError, XactLockExt as _};
use sqlx::{Connection as _, PgConnection};

use crate::support::{CLUSTER, LONG, fresh_key, pool};

#[tokio::test]
async fn without_a_transaction_nothing_is_sent() {
    let proxy = Proxy::start(CLUSTER.endpoint()).unwrap();
    let pool = pool(&proxy.url(), 1);
    let mut pooled = pool.acquire().await.unwrap();
    pooled.ping().await.unwrap();
    let before = proxy.bytes_to_server();
    let key = fresh_key();
    let mut refused = vec![
        pooled.try_xact_lock(key).await.map(drop),
        pooled.try_xact_lock_shared(key).await.map(drop),
        pooled.xact_lock(key).within(LONG).await,
    ];
    let direct: &mut PgConnection = &mut pooled;
    refused.push(direct.xact_lock_shared([key, fresh_key()]).without_limit().await);
    for refused in refused {
        assert!(
            matches!(refused, Err(XactLockError::NoTransaction { .. })),
            "{refused:?}"
        );
    }
    assert_eq!(proxy.bytes_to_server(), before);
    let mut transaction = pooled.begin().await.unwrap();
    assert!(transaction.try_xact_lock(key).await.unwrap());
}
