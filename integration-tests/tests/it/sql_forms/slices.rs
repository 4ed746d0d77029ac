//! The quiet slice: a wait in the server's queue that ends without a trace.

use std::time::{Duration, Instant};

use latchwork_core::WaitMethod;
use latchwork_harness::{Cluster, Installation};
use latchwork_postgres::PostgresOptions;

use super::{find, sent, verbose};
use crate::onlooker::{Onlooker, SOON, assert_quiet, connect, majors};

const SLICE: Duration = Duration::from_millis(400);

fn sliced() -> PostgresOptions {
    PostgresOptions::default().with_wait_slice(SLICE)
}

/// What the engine sends to wait for key 7, with its limit as `{limit}`.
async fn slice_of(installation: &Installation) -> String {
    let cluster = verbose(installation.clone());
    let postgres = connect(&cluster.url(), PostgresOptions::default()).await;
    let onlooker = Onlooker::new(&cluster.url()).await;
    onlooker.value("SELECT pg_advisory_lock(7)").await;
    let locks = postgres.locks();
    let wait = locks
        .acquire(latchwork_core::Key::bigint(7))
        .within(Duration::from_millis(100));
    assert!(wait.await.unwrap_err().is_timeout());
    locks.close().await;
    let text = find(&sent(&cluster), &["SET LOCAL lock_timeout"]);
    let (before, rest) = text.split_once("lock_timeout = '").unwrap();
    let (_, after) = rest.split_once('\'').unwrap();
    format!("{before}lock_timeout = '{{limit}}'{after}")
}

async fn holds_key(session: &Onlooker) -> bool {
    session
        .is("EXISTS (SELECT FROM pg_locks WHERE locktype = 'advisory' AND granted AND pid = pg_backend_pid())")
        .await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_slice_of_1_ms_is_granted_as_it_says_and_leaves_nothing_behind() {
    for installation in majors() {
        println!("PostgreSQL {}", installation.version());
        let slice = slice_of(&installation).await.replace("{limit}", "1");
        let cluster = Cluster::builder().installation(installation).start().unwrap();
        let url = cluster.url();
        // Lets the key go after about as long as the slice waits for it.
        let contender = tokio::spawn(async move {
            let contender = Onlooker::new(&url).await;
            loop {
                let held = format!("SELECT pg_advisory_lock(7), pg_sleep({})", fastrand::f64() * 0.003);
                contender.value(&format!("{held}; SELECT pg_advisory_unlock(7)")).await;
            }
        });
        let waiter = Onlooker::new(&cluster.url()).await;
        let (mut granted, mut lapsed) = (0, 0);
        let begun = Instant::now();
        while granted + lapsed < 1_000 || granted < 50 || lapsed < 50 {
            assert!(begun.elapsed() < SOON * 3, "{granted} granted, {lapsed} lapsed");
            let answer = waiter.value(&slice).await == "t";
            assert_eq!(holds_key(&waiter).await, answer);
            if answer {
                granted += 1;
                assert_eq!(waiter.value("SELECT pg_advisory_unlock(7)").await, "t");
                assert!(!holds_key(&waiter).await, "held more than once");
            } else {
                lapsed += 1;
            }
        }
        contender.abort();
        assert_eq!(
            waiter.value("SHOW lock_timeout").await,
            "0",
            "the limit ends with the slice"
        );
        assert_quiet(&cluster);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cancelled_slice_leaves_nothing_after_the_session_was_cleared() {
    for installation in majors() {
        println!("PostgreSQL {}", installation.version());
        let slice = slice_of(&installation).await.replace("{limit}", "60000");
        let cluster = Cluster::builder().installation(installation).start().unwrap();
        let (holder, waiter) = (Onlooker::new(&cluster.url()).await, Onlooker::new(&cluster.url()).await);
        let canceller = Onlooker::new(&cluster.url()).await;
        let pid = waiter.pid().await;
        let mut stopped = 0;
        for _ in 0..300 {
            holder.value("SELECT pg_advisory_lock(7)").await;
            // The release and the cancel race, so that the cancel hits every step of the slice.
            let release = format!(
                "SELECT pg_sleep({}); SELECT pg_advisory_unlock(7)",
                fastrand::f64() * 0.003
            );
            let cancel = format!(
                "SELECT pg_sleep({}); SELECT pg_cancel_backend({pid})",
                fastrand::f64() * 0.003
            );
            let (answer, _, _) = tokio::join!(
                waiter.0.simple_query(&slice),
                holder.value(&release),
                canceller.value(&cancel)
            );
            stopped += u32::from(answer.is_err());
            // A cancel that comes late hits the clearing; so does one that comes when nothing runs, which does nothing.
            while waiter.0.simple_query("SELECT pg_advisory_unlock_all()").await.is_err() {}
            assert!(!holds_key(&waiter).await);
            assert!(
                waiter.is("now() = statement_timestamp()").await,
                "no transaction is open"
            );
        }
        assert!(stopped > 0, "no cancel ever came in time");
    }
}

/// Whether every snapshot that some engine's session keeps is younger than `xid`.
async fn forgotten(onlooker: &Onlooker, xid: &str) -> bool {
    let pinned = format!(
        "EXISTS (SELECT FROM pg_stat_activity WHERE application_name LIKE 'latchwork:%' AND age(backend_xmin) >= age('{xid}'::xid))"
    );
    !onlooker.is(&pinned).await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_waiter_keeps_no_snapshot_for_longer_than_a_slice() {
    for installation in majors() {
        println!("PostgreSQL {}", installation.version());
        let cluster = Cluster::builder().installation(installation).start().unwrap();
        let (one, other) = (
            connect(&cluster.url(), sliced()).await,
            connect(&cluster.url(), sliced()).await,
        );
        let onlooker = Onlooker::new(&cluster.url()).await;
        let guard = one.locks().try_acquire("job").await.unwrap().unwrap();
        let waiting = tokio::spawn(other.locks().acquire("job").within(SOON * 3));
        onlooker.waiter().await;
        let begun = Instant::now();
        let mut pins = 0;
        while begun.elapsed() < SLICE * 4 {
            let xid = onlooker.value("SELECT txid_current()::text::xid").await;
            let at = Instant::now();
            while !forgotten(&onlooker, &xid).await {
                pins += 1;
                assert!(
                    at.elapsed() < SLICE * 3,
                    "a snapshot from before {xid} is kept for {:?}",
                    at.elapsed()
                );
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        assert!(pins > 0, "a wait in the queue keeps a snapshot; it was never seen");
        guard.release().await.unwrap();
        waiting.await.unwrap().unwrap().release().await.unwrap();
        assert_quiet(&cluster);
    }
}

/// Builds an index beside whatever waits, and says how long it took.
async fn build_index(session: &Onlooker) -> Duration {
    let begun = Instant::now();
    session.value("CREATE INDEX CONCURRENTLY ON orders (id)").await;
    begun.elapsed()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_concurrent_index_build_of_the_holder_ends_although_others_wait() {
    for installation in majors() {
        println!("PostgreSQL {}", installation.version());
        let cluster = Cluster::builder().installation(installation).start().unwrap();
        cluster
            .psql("CREATE TABLE orders AS SELECT generate_series(1, 100) AS id")
            .unwrap();
        let (one, other) = (
            connect(&cluster.url(), sliced()).await,
            connect(&cluster.url(), sliced()).await,
        );
        let builder = Onlooker::new(&cluster.url()).await;
        for method in [WaitMethod::Queue, WaitMethod::Poll] {
            let guard = one.locks().try_acquire("migrate").await.unwrap().unwrap();
            let waiting = tokio::spawn(other.locks().acquire("migrate").wait_by(method).within(SOON * 3));
            match method {
                WaitMethod::Queue => drop(builder.waiter().await),
                _ => tokio::task::yield_now().await,
            }
            // It waits for old snapshots three times, and each time a slice may have just begun.
            let took = build_index(&builder).await;
            assert!(took < SLICE * 5 + Duration::from_secs(3), "{method:?}: {took:?}");
            assert!(!waiting.is_finished());
            assert!(guard.is_held());
            guard.release().await.unwrap();
            waiting.await.unwrap().unwrap().release().await.unwrap();
        }
        // The holder may also be a session that does both.
        builder.value("SELECT pg_advisory_lock(7)").await;
        let waiting = tokio::spawn(other.locks().acquire(latchwork_core::Key::bigint(7)).within(SOON * 3));
        let onlooker = Onlooker::new(&cluster.url()).await;
        onlooker.waiter().await;
        let took = build_index(&builder).await;
        assert!(took < SLICE * 5 + Duration::from_secs(3), "{took:?}");
        builder.value("SELECT pg_advisory_unlock(7)").await;
        waiting.await.unwrap().unwrap().release().await.unwrap();
        assert_quiet(&cluster);
    }
}
