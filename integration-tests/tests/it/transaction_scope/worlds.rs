//! Transaction scope on other kinds of servers, connections and transactions.

use std::time::{Duration, Instant};

use latchwork_core::Key;
use latchwork_harness::{Cluster, PgBouncer, PoolMode};
use latchwork_postgres::transaction::{XactLockError, XactLockExt as _};
use tokio_postgres::{NoTls, SimpleQueryMessage, Transaction};

use super::{CLUSTER, LONG, MOMENT, SOON, becomes, client, fresh_key, is_usable, seen};

#[tokio::test]
async fn it_works_through_a_pooler_in_transaction_mode() {
    let pooler = PgBouncer::builder(&CLUSTER, PoolMode::Transaction)
        .setting("default_pool_size", 4)
        .start()
        .unwrap();
    let key = fresh_key();
    CLUSTER
        .psql("CREATE TABLE pooled (n int); INSERT INTO pooled VALUES (0)")
        .unwrap();
    let mut workers = Vec::new();
    for _ in 0..8 {
        let url = pooler.url();
        workers.push(tokio::spawn(async move {
            let mut client = client(&url).await;
            for _ in 0..20 {
                let transaction = client.transaction().await.unwrap();
                transaction.xact_lock(key).within(LONG).await.unwrap();
                let step = "DO $$ DECLARE was int := (SELECT n FROM pooled); BEGIN PERFORM pg_sleep(0.001); \
                     UPDATE pooled SET n = was + 1; END $$";
                transaction.batch_execute(step).await.unwrap();
                transaction.commit().await.unwrap();
            }
        }));
    }
    for worker in workers {
        worker.await.unwrap();
    }
    assert_eq!(CLUSTER.psql("SELECT n FROM pooled").unwrap(), "160");

    // A wait that is given up frees the server connection that it had.
    let (mut one, mut two) = (client(&pooler.url()).await, client(&pooler.url()).await);
    let first = one.transaction().await.unwrap();
    first.xact_lock(key).within(LONG).await.unwrap();
    let second = two.transaction().await.unwrap();
    assert!(second.xact_lock(key).within(MOMENT).await.unwrap_err().is_timeout());
    let abandoned = tokio::select! {
        biased;
        granted = second.xact_lock(key).within(Duration::from_secs(60)) => Some(granted),
        () = becomes(&CLUSTER, key, (1, 1)) => None,
    };
    assert!(abandoned.is_none());
    let begun = Instant::now();
    becomes(&CLUSTER, key, (1, 0)).await;
    assert!(begun.elapsed() < SOON, "{:?}", begun.elapsed());
    assert!(is_usable(&second).await);
    drop(second);
    drop(first);
    becomes(&CLUSTER, key, (0, 0)).await;
}

#[tokio::test]
async fn a_hot_standby_is_refused() {
    let primary = Cluster::start().unwrap();
    let standby = primary.standby().unwrap();
    let mut client = client(&standby.url()).await;
    let transaction = client.transaction().await.unwrap();
    let by_try = transaction.try_xact_lock(fresh_key()).await.unwrap_err();
    let by_wait = transaction.xact_lock(fresh_key()).within(MOMENT).await.unwrap_err();
    for error in [by_try, by_wait] {
        assert!(matches!(error, XactLockError::Standby { .. }), "{error:?}");
    }
    let held = standby
        .psql("SELECT count(*) FROM pg_locks WHERE locktype = 'advisory'")
        .unwrap();
    assert_eq!(held, "0");
}

#[tokio::test]
async fn a_full_lock_table_is_an_error_of_its_own() {
    let cluster = Cluster::builder()
        .setting("max_locks_per_transaction", 10)
        .setting("max_connections", 10)
        .start()
        .unwrap();
    let mut client = client(&cluster.url()).await;
    let transaction = client.transaction().await.unwrap();
    let mut full = None;
    for key in 0..100_000 {
        if let Err(error) = transaction.try_xact_lock(Key::bigint(key)).await {
            full = Some(error);
            break;
        }
    }
    assert!(matches!(full, Some(XactLockError::LockTableFull { .. })), "{full:?}");
    drop(transaction);
    assert_eq!(
        cluster
            .psql("SELECT count(*) FROM pg_locks WHERE locktype = 'advisory'")
            .unwrap(),
        "0"
    );
}

#[tokio::test]
async fn transactions_of_deadpool_have_it_too() {
    let manager = deadpool_postgres::Manager::new(CLUSTER.url().parse().unwrap(), NoTls);
    let pool = deadpool_postgres::Pool::builder(manager).max_size(2).build().unwrap();
    let key = fresh_key();
    let (mut one, mut two) = (pool.get().await.unwrap(), pool.get().await.unwrap());
    let first = one.transaction().await.unwrap();
    first.xact_lock(key).within(LONG).await.unwrap();
    let second = two.transaction().await.unwrap();
    assert!(!second.try_xact_lock(key).await.unwrap());
    first.commit().await.unwrap();
    assert!(second.try_xact_lock(key).await.unwrap());
    assert_eq!(seen(&CLUSTER, key), (1, 0));
    drop(second);
    becomes(&CLUSTER, key, (0, 0)).await;
}

/// The lock travels on the connection that does the work, so holders never need a second one; and waits that are dropped
/// give theirs back clean.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pools_of_one_and_two_connections_are_enough_for_lock_and_work() {
    CLUSTER
        .psql("CREATE TABLE narrow (n int); INSERT INTO narrow VALUES (0)")
        .unwrap();
    for size in [1, 2] {
        let manager = deadpool_postgres::Manager::new(CLUSTER.url().parse().unwrap(), NoTls);
        let pool = deadpool_postgres::Pool::builder(manager)
            .max_size(size)
            .build()
            .unwrap();
        let key = fresh_key();
        CLUSTER.psql("UPDATE narrow SET n = 0").unwrap();
        let mut workers = Vec::new();
        for worker in 0..12_u64 {
            let pool = pool.clone();
            workers.push(tokio::spawn(async move {
                let mut done = 0;
                for round in 0..10_u64 {
                    let mut connection = pool.get().await.unwrap();
                    let work = async {
                        let transaction = connection.transaction().await.unwrap();
                        transaction.xact_lock(key).within(LONG).await.unwrap();
                        let row = transaction.query_one("SELECT n FROM narrow", &[]).await.unwrap();
                        let n: i32 = row.get(0);
                        transaction
                            .execute("UPDATE narrow SET n = $1", &[&(n + 1)])
                            .await
                            .unwrap();
                        transaction
                    };
                    // Every other worker drops some of what it does half-way.
                    let patience = if worker % 2 == 0 {
                        LONG
                    } else {
                        Duration::from_micros(150 * round)
                    };
                    if let Ok(transaction) = tokio::time::timeout(patience, work).await {
                        transaction.commit().await.unwrap();
                        done += 1;
                    }
                }
                done
            }));
        }
        let mut done = 0;
        for worker in workers {
            done += tokio::time::timeout(LONG, worker).await.expect("it hangs").unwrap();
        }
        assert!(done >= 60, "{done}");
        assert_eq!(CLUSTER.psql("SELECT n FROM narrow").unwrap(), done.to_string());
        becomes(&CLUSTER, key, (0, 0)).await;
        // What is in the pool is in no transaction.
        let connection = pool.get().await.unwrap();
        let answered = connection
            .simple_query("SELECT now() = statement_timestamp()")
            .await
            .unwrap();
        let idle = answered
            .iter()
            .any(|message| matches!(message, SimpleQueryMessage::Row(row) if row.get(0) == Some("t")));
        assert!(idle);
    }
}

#[test]
fn the_wait_may_move_between_threads() {
    fn is_send<T: Send>(_: &T) {}
    fn check(transaction: &Transaction<'_>) {
        is_send(&transaction.xact_lock(Key::bigint(1)));
        is_send(&transaction.xact_lock(Key::bigint(1)).within(LONG));
        is_send(&transaction.try_xact_lock(Key::bigint(1)));
    }
    let _ = check;
}

#[tokio::test]
async fn no_search_path_replaces_what_a_transaction_asks_the_server() {
    CLUSTER
        .psql(
            "CREATE SCHEMA hostile_levels;
             CREATE FUNCTION hostile_levels.says_no(text, text) RETURNS bool LANGUAGE sql AS $$ SELECT false $$;
             CREATE FUNCTION hostile_levels.says_yes(text, text) RETURNS bool LANGUAGE sql AS $$ SELECT true $$;
             CREATE OPERATOR hostile_levels.= (LEFTARG = text, RIGHTARG = text, FUNCTION = hostile_levels.says_no);
             CREATE OPERATOR hostile_levels.<> (LEFTARG = text, RIGHTARG = text, FUNCTION = hostile_levels.says_yes)",
        )
        .unwrap();
    let mut client = client(&CLUSTER.url()).await;
    client
        .batch_execute("SET search_path = hostile_levels, pg_catalog")
        .await
        .unwrap();
    let transaction = client.transaction().await.unwrap();
    assert!(transaction.try_xact_lock(fresh_key()).await.unwrap());
    transaction.xact_lock(fresh_key()).within(LONG).await.unwrap();
    transaction.rollback().await.unwrap();
}
