//! Sessions that end on the server's side.

use latchwork_harness::{Proxy, wait_until};
use latchwork_sqlx::{Key, LockedError, LockedTransactionExt as _};
use sqlx::PgTransaction;
use tokio::task::spawn_blocking;

use crate::support::{
    CLUSTER, LONG, becomes, connection, count, count_one, counter, fresh_key, holder, is_clean, patient, pool,
    terminate,
};

/// The pid of the session that waits for a key.
fn waiter_of(key: Key) -> i32 {
    let asked = CLUSTER.psql(&format!(
        "SELECT pid FROM pg_locks WHERE locktype = 'advisory' AND NOT granted AND classid = {} AND objid = {}",
        key.classid(),
        key.objid(),
    ));
    asked.unwrap().parse().unwrap()
}

/// A table whose COMMIT waits for a key.
fn waits_at_commit(key: Key) -> String {
    let table = counter();
    let trigger = format!(
        "CREATE FUNCTION {table}_waits() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN \
             PERFORM pg_advisory_xact_lock({key}); RETURN NULL; END $$; \
         CREATE CONSTRAINT TRIGGER waits AFTER UPDATE ON {table} DEFERRABLE INITIALLY DEFERRED \
             FOR EACH ROW EXECUTE FUNCTION {table}_waits()",
        key = key.sql_arguments(),
    );
    CLUSTER.psql(&trigger).unwrap();
    table
}

#[tokio::test]
async fn a_lent_session_that_ends_in_commit_is_an_outcome_that_is_not_known() {
    let (mut one, mut other) = (connection().await, connection().await);
    let (key, blocker) = (fresh_key(), fresh_key());
    let table = waits_at_commit(blocker);
    let first = holder(&mut other, blocker).await;
    let body = async |tx: &mut PgTransaction<'_>| count_one(tx, &table).await;
    let (ended, ()) = tokio::join!(one.locked_transaction(key, patient(), body), async {
        becomes(blocker, (1, 1)).await;
        terminate(waiter_of(blocker));
    });
    assert!(matches!(ended, Err(LockedError::OutcomeUnknown(_))), "{ended:?}");
    first.rollback().await.unwrap();
    assert_eq!(count(&table), "0");
}

/// A connection that does not answer gives its slot up, though nothing tells that it has ended.
#[tokio::test]
async fn a_silent_network_holds_no_slot_of_the_pool() {
    let proxy = Proxy::start(CLUSTER.endpoint()).unwrap();
    let (pool, key) = (pool(&proxy.url(), 1), fresh_key());
    let mut other = connection().await;
    let first = holder(&mut other, key).await;
    let freezes = async {
        becomes(key, (1, 1)).await;
        proxy.freeze();
    };
    let left = tokio::select! {
        biased;
        ended = pool.locked_transaction(key, patient(), async |_| Ok::<_, sqlx::Error>(())) => Some(ended),
        () = freezes => None,
    };
    assert!(left.is_none(), "{left:?}");
    let watched = pool.clone();
    let is_gone = spawn_blocking(move || wait_until(LONG, || watched.size() == 0));
    assert!(is_gone.await.unwrap(), "a slot is stuck");
    proxy.thaw();
    first.rollback().await.unwrap();
    becomes(key, (0, 0)).await;
    is_clean(&pool).await;
}
