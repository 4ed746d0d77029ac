use std::{
    sync::{
        atomic::{AtomicBool, Ordering},
        mpsc,
    },
    thread,
    time::Duration,
};

use tokio::runtime::Builder;

use super::{nothing_is_left, nothing_is_left_in_the_end};
use crate::{Locks, memory::MemoryServer, testing::poll};

const LONG: Duration = Duration::from_secs(60);

#[test]
fn a_guard_can_be_dropped_on_a_thread_without_a_runtime() {
    let runtime = Builder::new_current_thread().enable_time().build().unwrap();
    let server = MemoryServer::new();
    let (one, other) = (server.locks(), server.locks());
    for next in [&one, &other] {
        let guard = runtime.block_on(one.try_acquire("job")).unwrap().unwrap();
        let wait = runtime.spawn(next.acquire("job").within(LONG));
        runtime.block_on(tokio::task::yield_now());
        thread::spawn(move || drop(guard)).join().unwrap();
        drop(runtime.block_on(wait).unwrap().unwrap());
        nothing_is_left(&server);
    }
}

#[test]
fn a_permit_can_be_dropped_on_a_thread_without_a_runtime() {
    let runtime = Builder::new_current_thread().enable_time().build().unwrap();
    let server = MemoryServer::new();
    let (one, other) = (server.locks(), server.locks());
    for next in [&one, &other] {
        let pool = next.slots("pool", 1).unwrap();
        let permit = runtime
            .block_on(one.slots("pool", 1).unwrap().try_acquire())
            .unwrap()
            .unwrap();
        let wait = runtime.spawn(pool.acquire().within(LONG));
        runtime.block_on(tokio::task::yield_now());
        thread::spawn(move || drop(permit)).join().unwrap();
        assert!(runtime.block_on(wait).unwrap().unwrap().is_held());
    }
}

#[test]
fn those_who_wait_for_a_slot_are_served_although_the_runtime_that_asked_has_gone() {
    let server = MemoryServer::new();
    let holder_locks = server.locks();
    let locks = server.locks();
    let pool = locks.slots("pool", 1).unwrap();
    let first = Builder::new_current_thread().enable_time().build().unwrap();
    let holder = first
        .block_on(holder_locks.slots("pool", 1).unwrap().try_acquire())
        .unwrap()
        .unwrap();
    // The question for the next interval is a task of the first runtime, and ends with it.
    let ends_with_it = first.spawn(pool.acquire().within(LONG));
    first.block_on(tokio::task::yield_now());
    let (served, is_served) = mpsc::channel();
    let second = thread::spawn({
        let pool = pool.clone();
        move || {
            let second = Builder::new_current_thread().enable_time().build().unwrap();
            second.block_on(async {
                let mut wait = Box::pin(pool.acquire().within(LONG));
                tokio::select! {
                    biased;
                    _ = &mut wait => panic!("the slot is held"),
                    () = tokio::task::yield_now() => served.send("waits").unwrap(),
                }
                drop(wait.await.unwrap());
                served.send("served").unwrap();
            });
        }
    });
    assert_eq!(is_served.recv_timeout(LONG), Ok("waits"));
    drop(first);
    drop(ends_with_it);
    drop(holder);
    assert_eq!(is_served.recv_timeout(LONG), Ok("served"));
    second.join().unwrap();
}

#[test]
fn a_runtime_can_end_while_its_tasks_wait() {
    for workers in [0, 2] {
        let runtime = match workers {
            0 => Builder::new_current_thread().enable_time().build().unwrap(),
            _ => Builder::new_multi_thread()
                .worker_threads(workers)
                .enable_time()
                .build()
                .unwrap(),
        };
        let server = MemoryServer::new();
        let (one, other) = (server.locks(), server.locks());
        let guard = runtime.block_on(one.try_acquire("job")).unwrap().unwrap();
        let permit = runtime
            .block_on(one.slots("pool", 1).unwrap().try_acquire())
            .unwrap()
            .unwrap();
        for _ in 0..50 {
            for locks in [&one, &other] {
                runtime.spawn(locks.acquire("job").within(LONG));
                runtime.spawn(locks.slots("pool", 1).unwrap().acquire().within(LONG));
            }
        }
        while server.queued() == 0 {
            runtime.block_on(tokio::task::yield_now());
        }
        drop(runtime);
        drop((guard, permit));
        assert_eq!((one.stats().holders, other.stats().holders), (0, 0));
        assert_eq!(server.queued(), 0);
        drop((one, other));
    }
}

#[test]
fn waiting_without_a_limit_needs_no_runtime() {
    let locks = Locks::in_memory();
    for shared in [false, true] {
        let acquire = || {
            let builder = locks.acquire("job");
            if shared { builder.shared() } else { builder }.without_limit()
        };
        let holder = crate::testing::Polled::new(locks.try_acquire("job"))
            .ready()
            .unwrap()
            .unwrap();
        let mut wait = poll(acquire());
        drop(holder);
        drop(wait.ready().unwrap());
    }
}

#[test]
fn sessions_that_end_while_others_acquire_leave_nothing_behind() {
    let server = MemoryServer::new();
    let sides = [server.locks(), server.locks()];
    let ended = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            for _ in 0..300 {
                server.end_sessions();
                thread::yield_now();
            }
            ended.store(true, Ordering::SeqCst);
        });
        for locks in &sides {
            let ended = &ended;
            scope.spawn(move || {
                let runtime = Builder::new_current_thread().enable_time().build().unwrap();
                runtime.block_on(async {
                    let pool = locks.slots("pool", 2).unwrap();
                    while !ended.load(Ordering::SeqCst) {
                        // Whatever becomes of them: they may be lost at any moment.
                        drop(locks.acquire("job").within(LONG).await);
                        drop(locks.try_acquire("job").shared().await);
                        drop(pool.try_acquire().await);
                        drop(pool.acquire().within(LONG).await);
                    }
                });
            });
        }
    });
    assert_eq!(sides.each_ref().map(|locks| locks.stats().holders), [0, 0]);
    drop(sides);
    nothing_is_left_in_the_end(&server);
}

#[test]
fn locks_that_go_while_others_are_granted_what_they_held_leave_nothing_behind() {
    let server = MemoryServer::new();
    thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| {
                for _ in 0..2_000 {
                    let locks = server.locks();
                    let mut acquire = crate::testing::Polled::new(locks.acquire("job").without_limit());
                    if let std::task::Poll::Ready(guard) = acquire.poll() {
                        // Left to the end of the session.
                        guard.unwrap().leak();
                    }
                }
            });
        }
    });
    nothing_is_left(&server);
}
