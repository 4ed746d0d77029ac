//! Locks for services without async, on threads.

use std::{
    sync::atomic::{AtomicUsize, Ordering},
    thread,
    time::Duration,
};

use latchwork_core::{Key, ReleaseError};
use latchwork_harness::{Cluster, wait_until};
use latchwork_postgres::blocking::BlockingLocks;

use crate::onlooker::{SOON, quick};

const KEY: Key = Key::bigint(42);

fn connect(cluster: &Cluster) -> BlockingLocks {
    BlockingLocks::connect(cluster.url().parse().unwrap(), quick()).unwrap()
}

fn held(cluster: &Cluster) -> String {
    let count = "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory'";
    cluster.psql(count).unwrap()
}

#[test]
fn threads_of_two_processes_exclude_each_other_and_drop_gives_up() {
    let cluster = Cluster::start().unwrap();
    let processes = [connect(&cluster), connect(&cluster)];
    let (inside, most) = (AtomicUsize::new(0), AtomicUsize::new(0));
    thread::scope(|scope| {
        for at in 0..8 {
            let locks = processes[at % 2].clone();
            let (inside, most) = (&inside, &most);
            scope.spawn(move || {
                for _ in 0..20 {
                    let guard = locks.acquire(KEY, SOON).unwrap();
                    assert!(guard.is_held());
                    most.fetch_max(inside.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
                    thread::yield_now();
                    inside.fetch_sub(1, Ordering::SeqCst);
                    if fastrand::bool() {
                        guard.release().unwrap();
                    }
                }
            });
        }
    });
    assert_eq!(most.load(Ordering::SeqCst), 1);
    assert!(wait_until(SOON, || held(&cluster) == "0"));
    let guard = processes[0].try_acquire(KEY).unwrap().unwrap();
    assert!(processes[1].try_acquire(KEY).unwrap().is_none());
    let late = processes[1].acquire(KEY, Duration::from_millis(20)).unwrap_err();
    assert!(late.is_timeout(), "{late:?}");
    drop(guard);
    let readers = [0, 1].map(|at| processes[at].acquire_shared(KEY, SOON).unwrap());
    drop(readers);
    processes.iter().for_each(|locks| locks.close_within(SOON).unwrap());
}

#[test]
fn a_session_that_ends_is_a_loss() {
    let cluster = Cluster::start().unwrap();
    let locks = connect(&cluster);
    let guard = locks.acquire(KEY, SOON).unwrap();
    cluster
        .psql("SELECT pg_terminate_backend(pid) FROM pg_locks WHERE locktype = 'advisory'")
        .unwrap();
    assert!(wait_until(SOON, || !guard.is_held()));
    let lost = guard.release().unwrap_err();
    assert!(matches!(lost, ReleaseError::Lost { .. }), "{lost:?}");
    drop(locks.acquire(KEY, SOON).unwrap());
}

#[test]
fn a_guard_outlives_the_locks_that_it_came_from() {
    let cluster = Cluster::start().unwrap();
    let locks = connect(&cluster);
    let guard = locks.acquire(KEY, SOON).unwrap();
    drop(locks);
    assert!(guard.is_held());
    guard.release().unwrap();
}
