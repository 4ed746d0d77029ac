//! Transaction scope on other kinds of servers, connections and transactions.

use std::{
    error::Error as StdError,
    fmt,
    num::NonZeroU32,
    sync::atomic::{AtomicU32, Ordering::Relaxed},
    time::Duration,
};

use latchwork_core::{Key, xact::XactOptions};
use latchwork_postgres::transaction::{LockedTransactionExt as _, XactLockExt as _};
use tokio_postgres::{Error, NoTls, SimpleQueryMessage, Transaction};

use super::{CLUSTER, LONG, becomes, client, fresh_key};

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

/// An error that is transparent for the driver's hides it, and shows what is in it.
#[tokio::test]
async fn a_conflict_is_run_again_though_a_transparent_error_hides_it() {
    #[derive(Debug)]
    struct Shown(Error);

    impl fmt::Display for Shown {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            self.0.fmt(f)
        }
    }

    impl StdError for Shown {
        fn source(&self) -> Option<&(dyn StdError + 'static)> {
            self.0.source()
        }
    }

    let manager = deadpool_postgres::Manager::new(CLUSTER.url().parse().unwrap(), NoTls);
    let pool = deadpool_postgres::Pool::builder(manager).max_size(1).build().unwrap();
    let (runs, options) = (AtomicU32::new(0), XactOptions::within(LONG));
    let attempts = NonZeroU32::new(2).unwrap();
    let work = pool.retrying_locked_transaction(fresh_key(), options, attempts, async |tx| {
        match runs.fetch_add(1, Relaxed) {
            0 => {
                tx.batch_execute("DO $$ BEGIN RAISE serialization_failure; END $$")
                    .await
            }
            _ => Ok(()),
        }
        .map_err(Shown)
    });
    work.await.unwrap();
    assert_eq!(runs.into_inner(), 2);
}
