use std::time::Duration;

use tokio::time::Instant;

use super::nothing_is_left;
use crate::{AcquireError, Locks, WaitMethod, memory::MemoryServer, testing::poll};

const LIMITS: [Duration; 4] = [
    Duration::ZERO,
    Duration::from_nanos(1),
    Duration::from_micros(250),
    Duration::from_secs(30),
];

#[tokio::test(start_paused = true)]
async fn any_limit_runs_out_when_it_says_and_tells_key_and_limit() {
    for here in [true, false] {
        for method in [WaitMethod::Queue, WaitMethod::Poll] {
            for limit in LIMITS {
                let server = MemoryServer::new();
                let locks = server.locks();
                let other = if here { locks.clone() } else { server.locks() };
                let holder = other.try_acquire("job").await.unwrap().unwrap();
                let before = Instant::now();
                let error = locks.acquire("job").wait_by(method).within(limit).await.unwrap_err();
                assert!(before.elapsed() >= limit && before.elapsed() <= limit + Duration::from_millis(2));
                match &error {
                    AcquireError::TimedOut { key, limit: told } => assert_eq!((*key, *told), (holder.key(), limit)),
                    other => panic!("{other:?}"),
                }
                assert!(error.is_timeout() && error.is_retryable() && !error.is_outage());
                drop(holder);
                nothing_is_left(&server);
            }
        }
    }
}

#[tokio::test(start_paused = true)]
async fn any_limit_is_enough_for_a_free_key() {
    for limit in LIMITS {
        let server = MemoryServer::new();
        drop(server.locks().acquire("job").within(limit).await.unwrap());
        nothing_is_left(&server);
    }
}

#[tokio::test(start_paused = true)]
async fn any_limit_on_a_slot_runs_out_when_it_says() {
    for here in [true, false] {
        for limit in LIMITS {
            let server = MemoryServer::new();
            let locks = server.locks();
            let other = if here { locks.clone() } else { server.locks() };
            let holder = other.slots("pool", 1).unwrap().try_acquire().await.unwrap().unwrap();
            let pool = locks.slots("pool", 1).unwrap();
            let before = Instant::now();
            let error = pool.acquire().within(limit).await.unwrap_err();
            assert!(error.is_timeout(), "{error:?}");
            assert!(before.elapsed() >= limit && before.elapsed() <= limit + Duration::from_millis(2));
            drop(holder);
            drop(pool.acquire().within(Duration::from_secs(1)).await.unwrap());
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_wait_ends_with_the_key_before_its_limit() {
    let server = MemoryServer::new();
    let (one, other) = (server.locks(), server.locks());
    let holder = one.try_acquire("job").await.unwrap().unwrap();
    let wait = tokio::spawn(other.acquire("job").within(Duration::from_secs(30)));
    tokio::time::sleep(Duration::from_secs(29)).await;
    assert!(!wait.is_finished());
    holder.release().await.unwrap();
    drop(wait.await.unwrap().unwrap());
    nothing_is_left(&server);
}

#[tokio::test(start_paused = true)]
async fn a_wait_without_a_limit_outlasts_a_year() {
    let locks = Locks::in_memory();
    let holder = locks.try_acquire("job").await.unwrap().unwrap();
    let mut wait = poll(locks.acquire("job").without_limit());
    tokio::time::advance(Duration::from_secs(366 * 24 * 3600)).await;
    assert!(wait.is_pending());
    drop(holder);
    drop(wait.ready().unwrap());
}

#[tokio::test(start_paused = true)]
async fn a_limit_beyond_all_time_is_no_limit() {
    let locks = Locks::in_memory();
    let holder = locks.try_acquire("job").await.unwrap().unwrap();
    let mut wait = poll(locks.acquire("job").within(Duration::MAX));
    drop(holder);
    drop(wait.ready().unwrap());
}
