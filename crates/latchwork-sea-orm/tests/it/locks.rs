//! Locks on a transaction of the caller's.

use latchwork_sea_orm::{Key, XactLockError, XactLockExt as _};
use sea_orm::{ConnectionTrait, DatabaseExecutor, DatabaseTransaction, TransactionTrait as _};

use crate::support::{SOON, World, fresh_key};

/// A pool has no methods for it, and a wrapper that may have a transaction is asked before anything is sent.
#[tokio::test]
async fn without_a_transaction_nothing_is_locked_for_no_time() {
    let world = World::new().await;
    let db = world.database(1).await;
    let key = fresh_key();
    let alone = DatabaseExecutor::from(&db);
    // So that whatever it sends would not come through.
    let only_connection = db.get_postgres_connection_pool().acquire().await.unwrap();
    let by_try = alone.try_xact_lock(key).await.unwrap_err();
    let by_wait = alone.xact_lock_shared(key).within(SOON).await.unwrap_err();
    for error in [by_try, by_wait] {
        assert!(matches!(error, XactLockError::NoTransaction { .. }), "{error:?}");
    }
    drop(only_connection);

    let transaction = db.begin().await.unwrap();
    assert!(DatabaseExecutor::from(&transaction).try_xact_lock(key).await.unwrap());
    assert!(
        DatabaseExecutor::OwnedTransaction(transaction)
            .try_xact_lock(key)
            .await
            .unwrap()
    );
    world.becomes(key, (0, 0)).await;
    // The server knows of a transaction that SeaORM takes to be open.
    let transaction = db.begin().await.unwrap();
    transaction.execute_unprepared("COMMIT").await.unwrap();
    let error = transaction.xact_lock(key).within(SOON).await.unwrap_err();
    assert!(matches!(error, XactLockError::NoTransaction { .. }), "{error:?}");
    assert_eq!(world.all_seen().await, (0, 0));
}

#[test]
fn what_is_awaited_may_move_between_threads() {
    fn is_send<T: Send>(_: &T) {}
    fn check(transaction: &DatabaseTransaction) {
        is_send(&transaction.xact_lock(Key::bigint(1)));
        is_send(&transaction.xact_lock(Key::bigint(1)).within(SOON));
        is_send(&transaction.try_xact_lock(Key::bigint(1)));
    }
    let _ = check;
}
