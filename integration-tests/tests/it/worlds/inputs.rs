//! Names, limits and numbers that make no sense.

use std::time::Duration;

use latchwork_core::{AcquireError, Key};
use latchwork_harness::Cluster;

use crate::onlooker::{Onlooker, assert_quiet, chain, connect, quick};

#[tokio::test(flavor = "multi_thread")]
async fn names_that_make_no_key_are_refused_with_what_to_do_and_ask_nothing_of_the_server() {
    let cluster = Cluster::builder().setting("log_statement", "all").start().unwrap();
    let locks = connect(&cluster.url(), quick()).await.locks();
    let huge = "x".repeat(10 << 20);
    let sent = cluster.log().matches("pg_try_advisory_lock").count();
    for (name, advice) in [
        ("", "pass a name that says what is locked"),
        (&huge, "lock on an identifier or a hash"),
        ("a\0b", "NUL"),
    ] {
        let errors = [
            locks.try_acquire(name).await.map(drop).unwrap_err(),
            locks
                .acquire(name)
                .within(Duration::from_secs(1))
                .await
                .map(drop)
                .unwrap_err(),
            locks
                .acquire(name)
                .shared()
                .without_limit()
                .await
                .map(drop)
                .unwrap_err(),
        ];
        for error in errors {
            assert!(matches!(error, AcquireError::Key(_)) && !error.is_outage(), "{error:?}");
            assert!(chain(&error).contains(advice) && chain(&error).len() < 2_000, "{error}");
        }
        let error = locks.slots(name, 3).unwrap_err();
        assert!(chain(&error).contains(advice), "{error}");
    }
    assert_eq!(cluster.log().matches("pg_try_advisory_lock").count(), sent);
}

#[tokio::test]
async fn a_pool_of_no_slots_and_one_of_too_many_are_refused_with_what_to_do() {
    let cluster = Cluster::start().unwrap();
    let locks = connect(&cluster.url(), quick()).await.locks();
    assert!(
        locks
            .slots("pool", 0)
            .unwrap_err()
            .to_string()
            .contains("give it at least 1")
    );
    assert!(
        locks
            .slots_of_resource(7, 0)
            .unwrap_err()
            .to_string()
            .contains("give it at least 1")
    );
    assert!(
        locks
            .slots("pool", u32::MAX)
            .unwrap_err()
            .to_string()
            .contains("at most")
    );
    let _pool = locks.slots("pool", 3).unwrap();
    assert!(
        locks
            .slots("pool", 4)
            .unwrap_err()
            .to_string()
            .contains("use one number everywhere")
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_limit_of_zero_is_one_attempt_and_a_nanosecond_is_a_limit() {
    let cluster = Cluster::start().unwrap();
    let locks = connect(&cluster.url(), quick()).await.locks();
    let onlooker = Onlooker::new(&cluster.url()).await;
    let guard = locks.acquire("free").within(Duration::ZERO).await.unwrap();
    guard.release().await.unwrap();
    onlooker.value("SELECT pg_advisory_lock(7)").await;
    for limit in [Duration::ZERO, Duration::from_nanos(1), Duration::from_micros(999)] {
        let error = locks.acquire(Key::bigint(7)).within(limit).await.unwrap_err();
        assert!(error.is_timeout(), "{limit:?}: {error:?}");
    }
    assert_eq!(onlooker.queued().await, 0);
    assert_quiet(&cluster);
}
