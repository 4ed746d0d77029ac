//! Sessions that end on the server's side.

use diesel::result::Error;
use diesel_async::AsyncPgConnection;
use latchwork_diesel_async::{Key, LockedError, LockedTransactionExt};
use latchwork_harness::{Proxy, wait_until};
use tokio::task::spawn_blocking;

use crate::support::{
    Bb8, CLUSTER, Deadpool, LONG, TestPool, becomes, connection, count, count_one, counter, end, fresh_key, holder,
    is_clean, patient, terminate,
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
    let mut one = connection().await;
    let (key, blocker) = (fresh_key(), fresh_key());
    let table = waits_at_commit(blocker);
    let first = holder(blocker).await;
    let body = async |tx: &mut AsyncPgConnection| count_one(tx, &table).await;
    let (ended, ()) = tokio::join!(one.locked_transaction(key, patient(), body), async {
        becomes(blocker, (1, 1)).await;
        terminate(waiter_of(blocker));
    });
    assert!(matches!(ended, Err(LockedError::OutcomeUnknown(_))), "{ended:?}");
    end(first).await;
    assert_eq!(count(&table), "0");
}

/// A connection that does not answer gives its slot up, though nothing tells that it has ended.
#[tokio::test]
async fn a_silent_network_holds_no_slot_of_the_pool() {
    holds_no_slot::<Deadpool>().await;
    holds_no_slot::<Bb8>().await;
}

async fn holds_no_slot<P: TestPool>()
where
    for<'p> &'p P: LockedTransactionExt,
{
    let proxy = Proxy::start(CLUSTER.endpoint()).unwrap();
    let (pool, key) = (P::of(&proxy.url(), 1), fresh_key());
    let first = holder(key).await;
    let freezes = async {
        becomes(key, (1, 1)).await;
        proxy.freeze();
    };
    let left = tokio::select! {
        biased;
        ended = (&pool).locked_transaction(key, patient(), async |_| Ok::<_, Error>(())) => Some(ended),
        () = freezes => None,
    };
    assert!(left.is_none(), "{left:?}");
    let watched = pool.clone();
    let is_gone = spawn_blocking(move || wait_until(LONG, || watched.size() == 0));
    assert!(is_gone.await.unwrap(), "a slot is stuck");
    proxy.thaw();
    end(first).await;
    becomes(key, (0, 0)).await;
    is_clean(&pool).await;
}
