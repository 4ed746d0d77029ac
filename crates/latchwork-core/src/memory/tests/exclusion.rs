use std::{
    sync::{
        Arc, Mutex,
        atomic::{AtomicI64, Ordering},
    },
    time::Duration,
};

use tokio::task::{JoinSet, yield_now};

use super::nothing_is_left;
use crate::{
    HandOverBound, Locks, LocksOptions, Mode, WaitMethod,
    key::Key,
    memory::MemoryServer,
    testing::{Polled, poll},
};

const KEYS: usize = 3;

/// Who holds a key by the tasks' own account: how many share it, or -1 for one alone.
#[derive(Default)]
struct Account([AtomicI64; KEYS]);

impl Account {
    fn begin(&self, key: usize, mode: Mode) {
        match mode {
            Mode::Exclusive => {
                let before = self.0[key].compare_exchange(0, -1, Ordering::SeqCst, Ordering::SeqCst);
                assert_eq!(before, Ok(0), "key {key} is held by others");
            }
            Mode::Shared => {
                let before = self.0[key].fetch_add(1, Ordering::SeqCst);
                assert!(before >= 0, "key {key} is held exclusively");
            }
        }
    }

    fn end(&self, key: usize, mode: Mode) {
        match mode {
            Mode::Exclusive => assert_eq!(self.0[key].swap(0, Ordering::SeqCst), -1),
            Mode::Shared => assert!(self.0[key].fetch_sub(1, Ordering::SeqCst) > 0),
        }
    }
}

async fn one_task(locks: Locks, account: Arc<Account>, seed: u64) -> (u32, u32) {
    let mut rng = fastrand::Rng::with_seed(seed);
    let (mut held, mut denied) = (0, 0);
    for _ in 0..150 {
        let key = rng.usize(..KEYS);
        let name = Key::bigint(i64::try_from(key).unwrap());
        let mode = if rng.u8(..3) == 0 {
            Mode::Exclusive
        } else {
            Mode::Shared
        };
        let method = if rng.u8(..4) == 0 {
            WaitMethod::Poll
        } else {
            WaitMethod::Queue
        };
        let guard = match rng.u8(..4) {
            0 => locks.try_acquire(name).mode(mode).await.unwrap(),
            1 => {
                let limit = Duration::from_micros(rng.u64(..1_500));
                let acquire = locks.acquire(name).mode(mode).wait_by(method).within(limit);
                match acquire.await {
                    Err(error) if error.is_timeout() => None,
                    guard => Some(guard.unwrap()),
                }
            }
            _ => {
                let acquire = locks.acquire(name).mode(mode).wait_by(method);
                Some(acquire.without_limit().await.unwrap())
            }
        };
        let Some(guard) = guard else {
            denied += 1;
            continue;
        };
        assert_eq!(guard.mode(), mode);
        assert!(guard.is_held());
        account.begin(key, mode);
        for _ in 0..rng.u8(..3) {
            yield_now().await;
        }
        account.end(key, mode);
        held += 1;
        if rng.bool() {
            guard.release().await.unwrap();
        }
    }
    (held, denied)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn keys_exclude_under_load_in_both_modes_over_tasks_and_sessions() {
    let server = MemoryServer::new();
    let bound = HandOverBound::new(20, Duration::from_millis(1));
    let options = LocksOptions {
        hand_over: bound,
        ..LocksOptions::default()
    };
    let sides = [server.locks(), server.locks_with(options)];
    let account = Arc::new(Account::default());
    let mut tasks = JoinSet::new();
    for seed in 0..64 {
        let locks = sides[usize::try_from(seed % 2).unwrap()].clone();
        tasks.spawn(one_task(locks, Arc::clone(&account), seed));
    }
    let (mut held, mut denied) = (0, 0);
    while let Some(task) = tasks.join_next().await {
        let (also_held, also_denied) = task.unwrap();
        held += also_held;
        denied += also_denied;
    }
    assert!(held > 1_000 && denied > 100, "held {held}, denied {denied}");
    nothing_is_left(&server);
    for locks in &sides {
        let stats = locks.stats();
        assert_eq!((stats.keys, stats.holders), (0, 0));
        assert_eq!(stats.granted.min(1), 1, "{stats:?}");
        assert!(stats.handed_over > 0, "{stats:?}");
    }
}

#[tokio::test]
async fn a_thousand_waiters_of_one_process_have_the_key_in_order() {
    let server = MemoryServer::new();
    let locks = server.locks();
    let order = Arc::new(Mutex::new(Vec::new()));
    let first = locks.try_acquire("job").await.unwrap().unwrap();
    let mut tasks = JoinSet::new();
    for number in 0..1_000 {
        let acquire = locks.acquire("job").without_limit();
        let order = Arc::clone(&order);
        tasks.spawn(async move {
            let guard = acquire.await.unwrap();
            order.lock().unwrap().push(number);
            yield_now().await;
            guard.release().await.unwrap();
        });
    }
    while locks.stats().keys == 0 || tasks.len() < 1_000 {
        yield_now().await;
    }
    yield_now().await;
    first.release().await.unwrap();
    tasks.join_all().await;
    let order = order.lock().unwrap();
    assert_eq!(*order, (0..1_000).collect::<Vec<_>>());
    nothing_is_left(&server);
}

#[tokio::test]
async fn another_process_has_its_turn_after_as_many_hand_overs_as_the_bound_says() {
    const BOUND: u32 = 10;
    let server = MemoryServer::new();
    let options = LocksOptions {
        hand_over: HandOverBound::new(BOUND, Duration::MAX),
        ..LocksOptions::default()
    };
    let busy = server.locks_with(options);
    let other = server.locks();
    let mut holder = busy.try_acquire("job").await.unwrap().unwrap();
    for _ in 0..5 {
        let mut waits = poll(other.acquire("job").without_limit());
        assert_eq!(server.queued(), 1);
        let mut hand_overs = 0;
        // In the busy process somebody waits at any moment.
        let next = loop {
            let mut next = poll(busy.acquire("job").without_limit());
            drop(holder);
            match next.poll() {
                std::task::Poll::Ready(guard) => holder = guard.unwrap(),
                std::task::Poll::Pending => break next,
            }
            hand_overs += 1;
            assert!(hand_overs <= BOUND);
        };
        assert!(hand_overs >= BOUND - 1, "{hand_overs} hand-overs");
        let theirs = waits.ready().unwrap();
        drop(theirs);
        let mut next = next;
        holder = next.ready().unwrap();
    }
    drop(holder);
    nothing_is_left(&server);
}

#[tokio::test]
async fn sessions_that_share_a_key_do_so_in_the_order_in_which_they_came() {
    let server = MemoryServer::new();
    let [one, two, three] = [server.locks(), server.locks(), server.locks()];
    let reader = one.try_acquire("job").shared().await.unwrap().unwrap();
    let also = two.try_acquire("job").shared().await.unwrap().unwrap();
    let mut writer = poll(three.acquire("job").without_limit());
    assert!(two.try_acquire("job").await.unwrap().is_none());
    let mut late = poll(server.locks().acquire("job").shared().without_limit());
    assert_eq!((server.held(), server.queued()), (2, 2));
    drop((reader, also));
    let writer = writer.ready().unwrap();
    assert!(late.is_pending());
    drop(writer);
    drop(late.ready().unwrap());
    nothing_is_left(&server);
}

#[tokio::test]
async fn different_keys_do_not_disturb_each_other() {
    let server = MemoryServer::new();
    let locks = server.locks();
    let mut guards = Vec::new();
    for number in 0..1_000 {
        guards.push(locks.try_acquire(Key::bigint(number)).await.unwrap().unwrap());
    }
    let pair = locks.try_acquire(Key::pair(0, 7)).await.unwrap().unwrap();
    assert_eq!(server.held(), 1_001);
    assert_eq!(locks.stats().holders, 1_001);
    drop((guards, pair));
    nothing_is_left(&server);
}

#[tokio::test]
async fn names_differ_by_case_and_by_parts() {
    let locks = Locks::in_memory();
    let _job = locks.try_acquire("job").await.unwrap().unwrap();
    assert!(locks.try_acquire("Job").await.unwrap().is_some());
    assert!(locks.try_acquire(["jo", "b"]).await.unwrap().is_some());
    assert!(locks.try_acquire("job").await.unwrap().is_none());
    assert!(Polled::new(locks.try_acquire(["job"])).ready().unwrap().is_none());
}
