use std::{
    collections::HashSet,
    sync::{Arc, Mutex},
    time::Duration,
};

use tokio::task::{JoinSet, yield_now};

use super::{nothing_is_left, nothing_is_left_in_the_end, without_bound};
use crate::{
    HandOverBound, Locks, LocksOptions, Slots,
    key::Key,
    memory::MemoryServer,
    slots::{MAX_SLOTS, SlotsError},
    testing::poll,
};

const LIMIT: u32 = 5;

async fn one_task(pool: Slots, held: Arc<Mutex<HashSet<u32>>>, seen: Arc<Mutex<HashSet<u32>>>) {
    for _ in 0..20 {
        let permit = pool.acquire().without_limit().await.unwrap();
        assert!(
            held.lock().unwrap().insert(permit.slot()),
            "slot {} is held twice",
            permit.slot()
        );
        seen.lock().unwrap().insert(permit.slot());
        assert!(held.lock().unwrap().len() <= LIMIT as usize);
        assert_eq!(permit.key(), pool.slot_key(permit.slot()));
        yield_now().await;
        assert!(held.lock().unwrap().remove(&permit.slot()));
        permit.release().await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sixty_four_tasks_share_five_slots_and_use_them_all() {
    let server = MemoryServer::new();
    let options = LocksOptions {
        hand_over: HandOverBound::new(10, Duration::from_millis(2)),
        ..LocksOptions::default()
    };
    let sides = [server.locks(), server.locks_with(options)];
    let (held, seen) = (Arc::default(), Arc::default());
    let mut tasks = JoinSet::new();
    for number in 0..64 {
        let pool = sides[number % 2].slots("pool", LIMIT).unwrap();
        tasks.spawn(one_task(pool, Arc::clone(&held), Arc::clone(&seen)));
    }
    tasks.join_all().await;
    assert_eq!(seen.lock().unwrap().len(), LIMIT as usize);
    for locks in &sides {
        assert_eq!(locks.stats().holders, 0);
    }
    drop(sides);
    nothing_is_left_in_the_end(&server);
}

#[tokio::test]
async fn waiters_of_one_process_have_slots_in_order() {
    let locks = without_bound(&MemoryServer::new());
    let pool = locks.slots("pool", 1).unwrap();
    let mut holder = pool.try_acquire().await.unwrap().unwrap();
    let waits: Vec<_> = (0..100).map(|_| poll(pool.acquire().without_limit())).collect();
    let mut waits = std::collections::VecDeque::from(waits);
    while let Some(mut first) = waits.pop_front() {
        assert!(first.is_pending());
        drop(holder);
        holder = first.ready().unwrap();
        if let Some(second) = waits.front_mut() {
            assert!(second.is_pending());
        }
    }
}

#[tokio::test]
async fn a_try_finds_the_last_free_slot_and_then_none() {
    let server = MemoryServer::new();
    let sides = [server.locks(), server.locks()];
    let pools = [sides[0].slots("pool", 7).unwrap(), sides[1].slots("pool", 7).unwrap()];
    let mut permits = Vec::new();
    for number in 0..7 {
        permits.push(pools[number % 2].try_acquire().await.unwrap().unwrap());
    }
    let slots: HashSet<u32> = permits.iter().map(crate::Permit::slot).collect();
    assert_eq!(slots, (0..7).collect());
    for pool in &pools {
        assert!(pool.try_acquire().await.unwrap().is_none());
    }
    let freed = permits.pop().unwrap();
    let slot = freed.slot();
    freed.release().await.unwrap();
    assert_eq!(pools[1].try_acquire().await.unwrap().unwrap().slot(), slot);
}

#[tokio::test(start_paused = true)]
async fn a_try_finds_a_slot_that_was_left_to_others_when_the_interval_is_over() {
    let server = MemoryServer::new();
    let options = LocksOptions {
        hand_over: HandOverBound::new(0, Duration::ZERO),
        ..LocksOptions::default()
    };
    let locks = server.locks_with(options);
    let pool = locks.slots("pool", 1).unwrap();
    let holder = pool.try_acquire().await.unwrap().unwrap();
    let waits = poll(pool.acquire().without_limit());
    drop(holder);
    drop(waits);
    assert!(pool.try_acquire().await.unwrap().is_none());
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert!(pool.try_acquire().await.unwrap().is_some());
}

#[tokio::test]
async fn a_pool_waits_for_a_slot_of_another_process() {
    let server = MemoryServer::new();
    let (one, other) = (server.locks(), server.locks());
    let holder = one.slots("pool", 1).unwrap().try_acquire().await.unwrap().unwrap();
    let pool = other.slots("pool", 1).unwrap();
    let wait = tokio::spawn(pool.acquire().within(Duration::from_secs(60)));
    yield_now().await;
    assert!(!wait.is_finished());
    drop(holder);
    assert_eq!(wait.await.unwrap().unwrap().slot(), 0);
}

#[tokio::test]
async fn other_limits_are_seen_between_processes_for_as_long_as_they_are_in_use() {
    let server = MemoryServer::new();
    let sides = [server.locks(), server.locks(), server.locks()];
    let five = sides[0].slots("pool", 5).unwrap();
    drop(five.try_acquire().await.unwrap().unwrap());
    assert_eq!(five.other_limits(), [0; 0]);
    let eight = sides[1].slots("pool", 8).unwrap();
    drop(eight.try_acquire().await.unwrap().unwrap());
    assert_eq!(eight.other_limits(), [5]);
    let three = sides[2].slots("pool", 3).unwrap();
    drop(three.acquire().within(Duration::ZERO).await.unwrap());
    assert_eq!(three.other_limits(), [5, 8]);
    assert_eq!(five.other_limits(), [0; 0], "it looks again after 30 s");

    let other_name = sides[2].slots("other", 4).unwrap();
    drop(other_name.try_acquire().await.unwrap().unwrap());
    assert_eq!(other_name.other_limits(), [0; 0]);
    drop(other_name);

    // A pool that is used no more announces nothing.
    drop((five, eight));
    let again = sides[0].slots("pool", 6).unwrap();
    drop(again.try_acquire().await.unwrap().unwrap());
    assert_eq!(again.other_limits(), [3]);
    drop((again, three));
    nothing_is_left(&server);
}

#[tokio::test]
async fn a_pool_is_announced_again_after_the_sessions_ended() {
    let server = MemoryServer::new();
    let sides = [server.locks(), server.locks()];
    let five = sides[0].slots("pool", 5).unwrap();
    drop(five.try_acquire().await.unwrap());
    server.end_sessions();
    drop(five.try_acquire().await.unwrap());
    let eight = sides[1].slots("pool", 8).unwrap();
    drop(eight.try_acquire().await.unwrap());
    assert_eq!(eight.other_limits(), [5]);
    drop((five, eight));
    nothing_is_left(&server);
}

#[tokio::test]
async fn all_pools_of_one_name_in_a_process_are_one() {
    let locks = Locks::in_memory();
    let pool = locks.slots("pool", 1).unwrap();
    let same = locks.clone().slots("pool", 1).unwrap();
    let permit = pool.try_acquire().await.unwrap().unwrap();
    assert!(same.try_acquire().await.unwrap().is_none());
    assert!(pool.clone().try_acquire().await.unwrap().is_none());
    drop(permit);
    assert!(same.try_acquire().await.unwrap().is_some());
    assert_eq!((pool.limit(), pool.slot_key(0)), (1, same.slot_key(0)));
    assert_ne!(pool.slot_key(0), locks.slots("other", 1).unwrap().slot_key(0));
}

#[tokio::test]
async fn a_pool_lives_as_long_as_its_permits() {
    let locks = Locks::in_memory();
    let pool = locks.slots("pool", 2).unwrap();
    let permit = pool.try_acquire().await.unwrap().unwrap();
    drop(pool);
    assert!(matches!(
        locks.slots("pool", 3),
        Err(SlotsError::OtherLimit { existing: 2, limit: 3 })
    ));
    drop(permit);
    assert_eq!(locks.slots("pool", 3).unwrap().limit(), 3);
}

#[test]
fn what_is_no_pool_is_refused() {
    let locks = Locks::in_memory();
    assert_eq!(locks.slots("pool", 0).unwrap_err(), SlotsError::NoSlots);
    assert_eq!(locks.slots_of_resource(7, 0).unwrap_err(), SlotsError::NoSlots);
    for limit in [MAX_SLOTS + 1, u32::MAX] {
        assert_eq!(
            locks.slots("pool", limit).unwrap_err(),
            SlotsError::TooManySlots { limit }
        );
    }
    assert!(matches!(locks.slots("", 3), Err(SlotsError::Key(_))));
    assert_eq!(locks.slots("pool", MAX_SLOTS).unwrap().limit(), MAX_SLOTS);
}

#[tokio::test]
async fn the_slots_of_a_resource_are_pairs_that_other_programs_can_use() {
    let locks = Locks::in_memory();
    let pool = locks.slots_of_resource(7, 3).unwrap();
    assert_eq!(pool.slot_key(2), Key::pair(7, 2));
    let _theirs = locks.try_acquire(Key::pair(7, 0)).await.unwrap().unwrap();
    let first = pool.try_acquire().await.unwrap().unwrap();
    let second = pool.try_acquire().await.unwrap().unwrap();
    assert!(pool.try_acquire().await.unwrap().is_none());
    let slots = HashSet::from([first.slot(), second.slot()]);
    assert_eq!(slots, HashSet::from([1, 2]));
}
