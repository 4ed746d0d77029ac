//! Sessions that end on the server's side.

use diesel::{QueryResult, result::Error};
use diesel_async::AsyncPgConnection;
use latchwork_diesel_async::{Key, LockedError, LockedTransactionExt, XactLockError};
use latchwork_harness::{Proxy, wait_until};
use tokio::task::spawn_blocking;

use crate::support::{
    Bb8, CLUSTER, Deadpool, LONG, TestPool, answers, becomes, connection, count, count_one, counter, end, fresh_key,
    holder, is_clean, patient, pid, pool, run, terminate,
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

#[tokio::test]
async fn a_session_that_ends_while_it_waits_is_a_lost_connection() {
    let (pool, key) = (pool(&CLUSTER.url(), 1), fresh_key());
    let first = holder(key).await;
    let body = async |_: &mut AsyncPgConnection| -> QueryResult<()> { panic!("it runs") };
    let (waited, ()) = tokio::join!(pool.locked_transaction(key, patient(), body), async {
        becomes(key, (1, 1)).await;
        terminate(waiter_of(key));
    });
    assert!(
        matches!(waited, Err(LockedError::Lock(XactLockError::ConnectionLost { .. }))),
        "{waited:?}"
    );
    end(first).await;
    is_clean(&pool).await;
}

#[tokio::test]
async fn a_session_that_ends_in_the_body_is_its_error_or_not_known() {
    let (pool, key, table) = (pool(&CLUSTER.url(), 1), fresh_key(), counter());
    for swallows in [false, true] {
        let ended = pool.locked_transaction(key, patient(), async |tx| {
            count_one(tx, &table).await?;
            terminate(pid(tx).await);
            becomes(key, (0, 0)).await;
            let failed = run(tx, "SELECT 1".to_owned()).await;
            if swallows {
                Ok(failed.unwrap_err())
            } else {
                failed.map(|()| unreachable!())
            }
        });
        match ended.await {
            Err(LockedError::Body(_)) if !swallows => {}
            Err(LockedError::OutcomeUnknown(_)) if swallows => {}
            ended => panic!("{ended:?}"),
        }
        is_clean(&pool).await;
    }
    assert_eq!(count(&table), "0");
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
async fn a_session_that_ends_in_commit_is_an_outcome_that_is_not_known() {
    let (pool, mut one) = (pool(&CLUSTER.url(), 1), connection().await);
    let (key, blocker) = (fresh_key(), fresh_key());
    let table = waits_at_commit(blocker);
    let first = holder(blocker).await;
    let kills = async || {
        becomes(blocker, (1, 1)).await;
        terminate(waiter_of(blocker));
    };
    let body = async |tx: &mut AsyncPgConnection| count_one(tx, &table).await;
    let (pooled, ()) = tokio::join!(pool.locked_transaction(key, patient(), body), kills());
    let (lent, ()) = tokio::join!(one.locked_transaction(key, patient(), body), kills());
    for ended in [pooled, lent] {
        assert!(matches!(ended, Err(LockedError::OutcomeUnknown(_))), "{ended:?}");
    }
    end(first).await;
    is_clean(&pool).await;
    assert_eq!(count(&table), "0");
}

#[tokio::test]
async fn a_commit_whose_caller_leaves_ends_all_the_same() {
    let pool = pool(&CLUSTER.url(), 1);
    let (key, blocker) = (fresh_key(), fresh_key());
    let table = waits_at_commit(blocker);
    let first = holder(blocker).await;
    let left = tokio::select! {
        biased;
        ended = pool.locked_transaction(key, patient(), async |tx| count_one(tx, &table).await) => Some(ended),
        () = becomes(blocker, (1, 1)) => None,
    };
    assert!(left.is_none(), "{left:?}");
    end(first).await;
    becomes(key, (0, 0)).await;
    is_clean(&pool).await;
    // Whether it was in time to be committed is for nobody to know; it was one or the other.
    assert!(["0", "1"].contains(&count(&table).as_str()));
}

/// What the server runs on for a caller who has left is ended, and its pool of one has room again.
#[tokio::test]
async fn a_statement_of_a_body_that_was_dropped_does_not_hold_the_lock() {
    ends_what_runs_on::<Deadpool>().await;
    ends_what_runs_on::<Bb8>().await;
}

async fn ends_what_runs_on<P: TestPool>()
where
    for<'p> &'p P: LockedTransactionExt,
{
    let (pool, key) = (P::of(&CLUSTER.url(), 1), fresh_key());
    let sleep = format!("SELECT pg_sleep(600) AS s{}", fastrand::u64(..));
    let running = format!("SELECT count(*) FROM pg_stat_activity WHERE query = '{sleep}' AND state = 'active'");
    let left = tokio::select! {
        biased;
        ended = (&pool).locked_transaction(key, patient(), async |tx| run(tx, sleep.clone()).await) => Some(ended),
        () = answers(running.clone(), "1") => None,
    };
    assert!(left.is_none(), "{left:?}");
    becomes(key, (0, 0)).await;
    answers(running, "0").await;
    is_clean(&pool).await;
}

/// Nor does one that the body itself has given up.
#[tokio::test]
async fn a_statement_that_a_failed_body_has_dropped_does_not_hold_the_lock() {
    let (pool, key) = (pool(&CLUSTER.url(), 1), fresh_key());
    let sleep = format!("SELECT pg_sleep(600) AS s{}", fastrand::u64(..));
    let running = format!("SELECT count(*) FROM pg_stat_activity WHERE query = '{sleep}' AND state = 'active'");
    let ended = pool.locked_transaction(key, patient(), async |tx| {
        tokio::select! {
            biased;
            slept = run(tx, sleep.clone()) => panic!("{slept:?}"),
            () = answers(running.clone(), "1") => Err::<(), _>(std::fmt::Error),
        }
    });
    assert!(matches!(ended.await, Err(LockedError::Body(_))));
    becomes(key, (0, 0)).await;
    is_clean(&pool).await;
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

#[tokio::test]
async fn what_is_rolled_back_on_another_thread_is_rolled_back() {
    let (pool, key, table) = (pool(&CLUSTER.url(), 1), fresh_key(), counter());
    let mut work = Box::pin({
        let (pool, table) = (pool.clone(), table.clone());
        async move {
            let body = async |tx: &mut AsyncPgConnection| {
                count_one(tx, &table).await?;
                std::future::pending::<QueryResult<()>>().await
            };
            pool.locked_transaction(key, patient(), body).await
        }
    });
    tokio::select! {
        biased;
        ended = &mut work => panic!("{ended:?}"),
        () = becomes(key, (1, 0)) => {}
    }
    std::thread::spawn(move || drop(work)).join().unwrap();
    becomes(key, (0, 0)).await;
    is_clean(&pool).await;
    assert_eq!(count(&table), "0");
}

/// Each worker of actix-web has a runtime of its own, and they end one by one.
#[tokio::test]
async fn what_was_begun_on_a_runtime_that_has_ended_is_not_handed_out_again() {
    ends_with_its_runtime::<Deadpool>().await;
    ends_with_its_runtime::<Bb8>().await;
}

async fn ends_with_its_runtime<P: TestPool>()
where
    for<'p> &'p P: LockedTransactionExt,
{
    let (pool, key, table) = (P::of(&CLUSTER.url(), 1), fresh_key(), counter());
    let (theirs, stays) = (pool.clone(), table.clone());
    let thread = std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread();
        let runtime = { runtime }.enable_all().build().unwrap();
        let mut work = Box::pin(async move {
            let body = async |tx: &mut AsyncPgConnection| {
                count_one(tx, &stays).await?;
                std::future::pending::<QueryResult<()>>().await
            };
            (&theirs).locked_transaction(key, patient(), body).await
        });
        runtime.block_on(async {
            tokio::select! {
                biased;
                ended = &mut work => panic!("{ended:?}"),
                () = becomes(key, (1, 0)) => {}
            }
        });
        drop(runtime);
        drop(work);
    });
    spawn_blocking(|| thread.join().unwrap()).await.unwrap();
    becomes(key, (0, 0)).await;
    is_clean(&pool).await;
    assert_eq!(count(&table), "0");
}
