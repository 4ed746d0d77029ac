//! More locks than one session is to hold.

use latchwork_core::Key;
use latchwork_harness::Cluster;

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
