//! Slots: at most so many at once, over all processes.

use std::collections::HashSet;
use std::pin::pin;
use std::time::Duration;

use futures_util::future::join_all;
use latchwork_core::{Key, Mode, Slots};
use tokio::task::JoinSet;
use tokio::time::sleep;

use super::fresh_key;
use crate::SessionWorld;
use crate::meter::Meter;
use crate::polling::{poll_once, step};
use crate::world::{LONG, View};

/// Over three processes there are never more than so many, no two have the same number, and all numbers are used.
pub async fn never_more_than_so_many_and_every_slot_is_used<W: SessionWorld>(world: &W) {
    const LIMIT: u32 = 4;
    let meter = Meter::default();
    let mut tasks = JoinSet::new();
    for _ in 0..3 {
        let pool = world.process().await.slots("pool", LIMIT).unwrap();
        for _ in 0..5 {
            tasks.spawn(use_slots(pool.clone(), meter.clone()));
        }
    }
    let mut used = HashSet::new();
    while let Some(done) = tasks.join_next().await {
        used.extend(done.unwrap());
    }
    assert_eq!(used, HashSet::from_iter(0..LIMIT));
    // All permits of a pool are inside one key of the meter, as shared ones.
    assert_eq!(meter.most_together(), LIMIT);
}

async fn use_slots(pool: Slots, meter: Meter) -> HashSet<u32> {
    let all = Key::bigint(0);
    let mut used = HashSet::new();
    for _ in 0..40 {
        let permit = match fastrand::u8(..3) {
            0 => pool.try_acquire().await.unwrap(),
            1 => pool.acquire().within(Duration::from_millis(3)).await.ok(),
            _ => Some(pool.acquire().within(LONG).await.unwrap()),
        };
        let Some(permit) = permit else { continue };
        let inside = (
            meter.enter(permit.key(), Mode::Exclusive),
            meter.enter(all, Mode::Shared),
        );
        assert!(meter.most_together() <= pool.limit(), "more permits than slots");
        assert!(permit.is_held());
        assert_eq!(permit.key(), pool.slot_key(permit.slot()));
        used.insert(permit.slot());
        sleep(Duration::from_micros(fastrand::u64(..2_000))).await;
        drop(inside);
        if fastrand::bool() {
            permit.release().await.unwrap();
        }
    }
    used
}

/// A try is refused when all slots are taken and only then, and the server shows one hold a slot.
pub async fn a_full_pool_refuses_and_a_released_slot_is_free<W: SessionWorld>(world: &W) {
    let (one, two) = (world.process().await, world.process().await);
    let resource = fastrand::i32(..);
    for (pool, others) in [
        (one.slots(fresh_key(), 3).unwrap(), None),
        (one.slots("pool", 3).unwrap(), Some(two.slots("pool", 3).unwrap())),
        (
            one.slots_of_resource(resource, 3).unwrap(),
            Some(two.slots_of_resource(resource, 3).unwrap()),
        ),
    ] {
        let mut permits = Vec::new();
        for _ in 0..3 {
            permits.push(pool.try_acquire().await.unwrap().expect("a free slot"));
        }
        let pools = [Some(&pool), others.as_ref()];
        for pool in pools.into_iter().flatten() {
            assert!(pool.try_acquire().await.unwrap().is_none());
            assert!(pool.acquire().within(Duration::ZERO).await.unwrap_err().is_timeout());
            assert!(
                pool.acquire()
                    .within(Duration::from_micros(100))
                    .await
                    .unwrap_err()
                    .is_timeout()
            );
            assert!(
                pool.acquire()
                    .within(Duration::from_millis(30))
                    .await
                    .unwrap_err()
                    .is_timeout()
            );
        }
        let numbers: HashSet<u32> = permits.iter().map(latchwork_core::Permit::slot).collect();
        assert_eq!(numbers.len(), 3);
        world
            .settles_to(View::held(3 + pools.into_iter().flatten().count()))
            .await;
        let freed = permits.pop().unwrap();
        let slot = freed.slot();
        freed.release().await.unwrap();
        let again = others
            .as_ref()
            .unwrap_or(&pool)
            .try_acquire()
            .await
            .unwrap()
            .expect("the slot is free");
        assert_eq!(again.slot(), slot);
        drop((permits, again, pool, others));
        world.settles_to(View::NOTHING).await;
    }
    let pool = one.slots_of_resource(resource, 2).unwrap();
    assert_eq!(pool.slot_key(1), Key::pair(resource, 1));
}

/// Waiters of one process are served in turn, and those of another when a slot is free.
pub async fn waiters_for_a_slot_are_served<W: SessionWorld>(world: &W) {
    let (one, two) = (world.process().await, world.process().await);
    let (pool, others) = (one.slots("pool", 1).unwrap(), two.slots("pool", 1).unwrap());
    let permit = pool.acquire().within(LONG).await.unwrap();
    let order = std::sync::Mutex::new(Vec::new());
    let mut waiting = Vec::new();
    for number in 0..10 {
        let mut asked = Box::pin(pool.acquire().within(LONG));
        assert!(poll_once(asked.as_mut()).await.is_pending());
        let order = &order;
        waiting.push(async move {
            let permit = asked.await.unwrap();
            order.lock().unwrap().push(number);
            drop(permit);
        });
    }
    let mut other = pin!(others.acquire().within(LONG));
    assert!(poll_once(other.as_mut()).await.is_pending());
    drop(permit);
    let (_, other) = tokio::join!(join_all(waiting), async { other.await.unwrap().release().await });
    other.unwrap();
    assert_eq!(order.into_inner().unwrap(), Vec::from_iter(0..10));
}

/// Whoever gives a pool another limit than others is seen by them; the largest holds.
pub async fn other_limits_are_seen_and_the_largest_holds<W: SessionWorld>(world: &W) {
    let (one, two) = (world.process().await, world.process().await);
    let two_slots = one.slots("pool", 2).unwrap();
    let first = two_slots.acquire().within(LONG).await.unwrap();
    let second = two_slots.acquire().within(LONG).await.unwrap();
    world.becomes(View::held(3)).await;
    assert!(two_slots.other_limits().is_empty());
    let three_slots = two.slots("pool", 3).unwrap();
    let third = three_slots.acquire().within(LONG).await.unwrap();
    assert_eq!(third.slot(), 2);
    assert!(three_slots.try_acquire().await.unwrap().is_none());
    while three_slots.other_limits() != [2] {
        step().await;
    }
    drop((first, second, third));
}
