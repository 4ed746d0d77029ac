//! More locks than one session is to hold.

use futures_util::future::join_all;
use latchwork_core::Key;
use latchwork_harness::Cluster;
use latchwork_postgres::PostgresOptions;

use crate::onlooker::{Onlooker, connect, eventually, loud, quick};

#[tokio::test(flavor = "multi_thread")]
async fn a_key_that_was_just_given_up_is_never_found_held_whichever_session_is_asked() {
    let cluster = Cluster::start().unwrap();
    let onlooker = Onlooker::new(&cluster.url()).await;
    let locks = connect(&cluster.url(), quick().with_locks_per_session(8)).await.locks();
    let tasks: Vec<_> = (0..48)
        .map(|number| {
            let locks = locks.clone();
            tokio::spawn(async move {
                for round in 0..300 {
                    let guard = locks.try_acquire(Key::bigint(number)).await.unwrap();
                    assert!(guard.is_some(), "nobody else wants key {number}, round {round}");
                }
            })
        })
        .collect();
    for task in tasks {
        task.await.unwrap();
    }
    eventually("nothing is left", async || onlooker.held().await == 0).await;
    locks.close().await;
    assert_eq!(loud(&cluster), Vec::<String>::new());
}

#[tokio::test(flavor = "multi_thread")]
async fn ten_thousand_locks_are_held_on_one_connection_where_so_many_are_wanted_there() {
    const LOCKS: usize = 10_000;
    let cluster = Cluster::builder()
        .setting("max_locks_per_transaction", 256)
        .start()
        .unwrap();
    let onlooker = Onlooker::new(&cluster.url()).await;
    let options = PostgresOptions::default()
        .with_max_locks(LOCKS)
        .with_locks_per_session(LOCKS);
    let locks = connect(&cluster.url(), options).await.locks();
    let wanted = (0..LOCKS).map(|number| locks.try_acquire(Key::bigint(i64::try_from(number).unwrap())));
    let guards = join_all(wanted).await;
    assert!(guards.iter().all(|guard| matches!(guard, Ok(Some(_)))));
    let sessions = "SELECT count(DISTINCT pid) FROM pg_locks WHERE locktype = 'advisory' AND granted";
    let held = onlooker.held().await;
    assert_eq!((held, onlooker.number(sessions).await), (10_000, 1));
    drop(guards);
    locks.close().await;
}
