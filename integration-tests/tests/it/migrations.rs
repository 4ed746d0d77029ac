//! Migrations under a lock that polls.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};

use latchwork_core::migrate::MigrateError;
use latchwork_harness::Cluster;
use latchwork_postgres::blocking::BlockingLocks;
use tokio_postgres::{Error, NoTls};

use crate::onlooker::{Onlooker, SOON, connect, eventually, quick};

async fn client(url: &str) -> tokio_postgres::Client {
    let (client, connection) = tokio_postgres::connect(url, NoTls).await.unwrap();
    tokio::spawn(connection);
    client
}

#[tokio::test(flavor = "multi_thread")]
async fn of_four_processes_one_migrates_at_a_time_and_a_concurrent_index_build_ends() {
    let cluster = Arc::new(Cluster::start().unwrap());
    cluster
        .psql("CREATE TABLE orders (id int, done int DEFAULT 0)")
        .unwrap();
    let at_once = Arc::new(AtomicUsize::new(0));
    let processes = (0..4).map(|_| {
        let (cluster, at_once) = (Arc::clone(&cluster), Arc::clone(&at_once));
        tokio::spawn(async move {
            let locks = connect(&cluster.url(), quick()).await.locks();
            let client = client(&cluster.url()).await;
            let work = async {
                assert_eq!(at_once.fetch_add(1, Ordering::SeqCst), 0);
                // It waits for every statement that had begun before.
                let index = "CREATE INDEX CONCURRENTLY IF NOT EXISTS by_id ON orders (id)";
                client.batch_execute(index).await?;
                at_once.fetch_sub(1, Ordering::SeqCst);
                Ok::<_, Error>(())
            };
            locks.migrate("migrations", SOON, work).await.unwrap();
            locks.close().await;
        })
    });
    for process in processes.collect::<Vec<_>>() {
        process.await.unwrap();
    }
    let indexes = "SELECT count(*) FROM pg_index WHERE indisvalid AND indrelid = 'orders'::regclass";
    assert_eq!(cluster.psql(indexes).unwrap(), "1");
}

#[tokio::test]
async fn the_lock_is_given_up_on_every_path() {
    let cluster = Cluster::start().unwrap();
    let onlooker = Onlooker::new(&cluster.url()).await;
    let locks = connect(&cluster.url(), quick()).await.locks();
    let failed = locks.migrate("migrations", SOON, async { Err::<(), _>("no such column") });
    assert!(matches!(failed.await, Err(MigrateError::Work("no such column"))));
    let panics = tokio::spawn({
        let locks = locks.clone();
        async move {
            locks
                .migrate("migrations", SOON, async {
                    panic!("as the test wants") as Result<(), ()>
                })
                .await
        }
    });
    assert!(panics.await.unwrap_err().is_panic());
    let held = locks.try_acquire("migrations").await.unwrap().unwrap();
    let late = locks.migrate("migrations", std::time::Duration::ZERO, async { Ok::<_, ()>(()) });
    assert!(matches!(late.await, Err(MigrateError::Lock(error)) if error.is_timeout()));
    drop(held);
    let lost = locks.migrate("migrations", SOON, async {
        cluster
            .psql("SELECT pg_terminate_backend(pid) FROM pg_locks WHERE locktype = 'advisory'")
            .unwrap();
        std::future::pending::<Result<(), ()>>().await
    });
    assert!(matches!(lost.await, Err(MigrateError::Lost(_))));
    eventually("nothing is held", async || onlooker.held().await == 0).await;
}

#[test]
fn a_blocking_tool_has_it_too_and_a_panic_gives_the_lock_up() {
    let cluster = Cluster::start().unwrap();
    let locks = BlockingLocks::connect(cluster.url().parse().unwrap(), quick()).unwrap();
    let done = locks.migrate("migrations", SOON, || cluster.psql("CREATE TABLE orders (id int)"));
    done.unwrap().unwrap();
    let panics = std::panic::AssertUnwindSafe(|| locks.migrate("migrations", SOON, || panic!("as the test wants")));
    std::panic::catch_unwind(panics).unwrap_err();
    locks.migrate("migrations", SOON, || ()).unwrap();
    locks.close_within(SOON).unwrap();
}
