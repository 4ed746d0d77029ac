//! What sessions promise beyond the scope-free promises: many tasks of one process, names, and the futures of slots and
//! releases.

use std::pin::pin;
use std::time::Duration;

use latchwork_core::{Key, Locks, Mode, Slots};
use tokio::task::JoinSet;
use tokio::time::sleep;

use super::cancellation::CANCELLED;
use super::{MODES, fresh_key};
use crate::meter::Meter;
use crate::polling::{drive_for, poll_once, poll_times};
use crate::world::{LONG, View};
use crate::{SessionWorld, Setup};

/// Two tasks of one process exclude each other, as two processes do, although the server sees one session.
pub async fn two_tasks_of_one_process_exclude_each_other<W: SessionWorld>(world: &W) {
    let process = world.process().await;
    let key = fresh_key();
    let first = process.acquire(key).within(LONG).await.unwrap();
    for mode in MODES {
        assert!(process.try_acquire(key).mode(mode).await.unwrap().is_none());
    }
    let mut waiting = pin!(process.clone().acquire(key).without_limit());
    assert!(poll_once(waiting.as_mut()).await.is_pending());
    world.becomes(View::held(1)).await;
    assert!(poll_once(waiting.as_mut()).await.is_pending());
    first.release().await.unwrap();
    let second = waiting.await.unwrap();
    assert!(second.is_held());
    world.becomes(View::held(1)).await;
    second.release().await.unwrap();
    // Shared ones of one process rest on one hold in the server.
    let shared = [
        process.try_acquire(key).shared().await.unwrap().unwrap(),
        process.try_acquire(key).shared().await.unwrap().unwrap(),
    ];
    world.becomes(View::held(1)).await;
    assert!(process.try_acquire(key).await.unwrap().is_none());
    let [one, two] = shared;
    one.release().await.unwrap();
    world.becomes(View::held(1)).await;
    assert!(two.is_held());
    two.release().await.unwrap();
}

/// Names that differ in case, in where a part ends, or in their namespace are different keys.
pub async fn names_are_taken_to_the_letter<W: SessionWorld>(world: &W) {
    let (one, two) = (world.process().await, world.process().await);
    let names = ["job", "Job", "JOB", "job ", "jöb"];
    let mut guards = Vec::new();
    for name in names {
        guards.push(one.try_acquire(name).await.unwrap().unwrap());
    }
    guards.push(one.try_acquire(["a", "bc"]).await.unwrap().unwrap());
    guards.push(one.try_acquire(["ab", "c"]).await.unwrap().unwrap());
    let space = latchwork_core::Namespace::new("billing").unwrap();
    guards.push(
        one.with_namespace(space.clone())
            .try_acquire("job")
            .await
            .unwrap()
            .unwrap(),
    );
    world.becomes(View::held(names.len() + 3)).await;
    for name in names {
        assert!(two.try_acquire(name).await.unwrap().is_none(), "{name}");
    }
    assert!(two.with_namespace(space).try_acquire("job").await.unwrap().is_none());
}

/// No two hold a key, over many tasks of several processes on several threads.
pub async fn no_two_hold_a_key_over_tasks_and_processes<W: SessionWorld>(world: &W) {
    const TASKS: usize = 8;
    const ROUNDS: usize = 60;
    // A wait in one mode is cancelled when its limit runs out and others of the process want the other mode.
    world.allow(CANCELLED, usize::MAX);
    let keys = [fresh_key(), fresh_key(), fresh_key()];
    let meter = Meter::default();
    let mut tasks = JoinSet::new();
    for _ in 0..3 {
        let process = world.process().await;
        for _ in 0..TASKS {
            tasks.spawn(hold_at_random(process.clone(), keys, meter.clone(), ROUNDS));
        }
    }
    while let Some(done) = tasks.join_next().await {
        done.unwrap();
    }
    assert!(meter.visits() > 3 * TASKS * ROUNDS / 3, "{} visits", meter.visits());
    assert!(meter.most_together() > 1, "shared holders never met");
}

async fn hold_at_random(process: Locks, keys: [Key; 3], meter: Meter, rounds: usize) {
    for _ in 0..rounds {
        let key = keys[fastrand::usize(..keys.len())];
        let mode = MODES[fastrand::usize(..2)];
        let guard = match fastrand::u8(..3) {
            0 => process.try_acquire(key).mode(mode).await.unwrap(),
            1 => process
                .acquire(key)
                .mode(mode)
                .within(Duration::from_millis(5))
                .await
                .ok(),
            _ => Some(process.acquire(key).mode(mode).within(LONG).await.unwrap()),
        };
        let Some(guard) = guard else { continue };
        let inside = meter.enter(key, mode);
        if fastrand::bool() {
            sleep(Duration::from_micros(fastrand::u64(..500))).await;
        }
        assert!(guard.is_held());
        drop(inside);
        if fastrand::bool() {
            guard.release().await.unwrap();
        }
    }
}

/// Dropped at any moment while a task of the same process holds the key, and while it hands the key on.
pub async fn dropped_at_any_moment_behind_a_local_holder<W: SessionWorld>(world: &W) {
    world.allow(CANCELLED, usize::MAX);
    // Without hand-over the key goes through the server each time.
    let setups = [
        Setup::default(),
        Setup {
            hand_over: latchwork_core::HandOverBound::new(0, Duration::ZERO),
            locks: None,
        },
    ];
    for setup in setups {
        let (process, other) = (world.process_with(setup).await, world.process().await);
        for (at, mode) in (0..40).flat_map(|at| MODES.map(|mode| (at, mode))) {
            let key = fresh_key();
            let hold = process.acquire(key).within(LONG).await.unwrap();
            assert!(
                poll_times(at % 4, process.acquire(key).mode(mode).without_limit())
                    .await
                    .is_none()
            );
            let mut waiting = Box::pin(process.acquire(key).mode(mode).within(LONG));
            assert!(poll_once(waiting.as_mut()).await.is_pending());
            drop(hold);
            drop(drive_for(Duration::from_micros(40 * at as u64), waiting.as_mut()).await);
            drop(waiting);
            drop(other.acquire(key).within(LONG).await.unwrap());
        }
        world.settles_to(View::NOTHING).await;
    }
}

/// The wait of one task is dropped while others of the same process wait for the same key: theirs go on.
pub async fn a_dropped_wait_leaves_those_of_other_tasks<W: SessionWorld>(world: &W) {
    world.allow(CANCELLED, usize::MAX);
    let (holder, process) = (world.process().await, world.process().await);
    for mode in MODES {
        let key = fresh_key();
        let hold = holder.acquire(key).within(LONG).await.unwrap();
        let mut first = Box::pin(process.acquire(key).mode(mode).within(LONG));
        let mut second = pin!(process.acquire(key).within(LONG));
        world.drive_until_waiting(1, first.as_mut()).await;
        assert!(poll_once(second.as_mut()).await.is_pending());
        drop(first);
        let (released, second) = tokio::join!(hold.release(), second);
        released.unwrap();
        second.unwrap().release().await.unwrap();
        world.settles_to(View::NOTHING).await;
    }
}

/// A release happens by the call: its future may be dropped after any number of polls.
pub async fn a_dropped_release_has_released<W: SessionWorld>(world: &W) {
    let process = world.process().await;
    let slots = process.slots("pool", 1).unwrap();
    for times in 0..6 {
        let guard = process.acquire(fresh_key()).within(LONG).await.unwrap();
        drop(poll_times(times, guard.release()).await);
        let permit = slots.acquire().within(LONG).await.unwrap();
        drop(poll_times(times, permit.release()).await);
        // The pool's marker stays as long as the pool.
        world.settles_to(View::held(1)).await;
    }
}

/// Permits: dropped after any number of polls and at any moment, with slots free and with all of them taken.
pub async fn dropped_at_any_poll_for_a_slot<W: SessionWorld>(world: &W) {
    let (one, two) = (world.process().await, world.process().await);
    let pools = [one.slots("pool", 2).unwrap(), two.slots("pool", 2).unwrap()];
    drop(pools[0].acquire().within(LONG).await.unwrap());
    drop(pools[1].acquire().within(LONG).await.unwrap());
    world.settles_to(View::held(markers(&pools))).await;
    drop_slots_at_any_poll(world, &one, &pools, 0).await;
    let first = pools[1].acquire().within(LONG).await.unwrap();
    drop_slots_at_any_poll(world, &one, &pools, 1).await;
    let second = pools[1].acquire().within(LONG).await.unwrap();
    drop_slots_at_any_poll(world, &one, &pools, 2).await;
    drop((first, second));
}

/// Each process that uses a pool holds a marker.
fn markers(pools: &[Slots]) -> usize {
    pools.len()
}

/// Sends something behind what is on its way to the server.
async fn pass_through(process: &Locks) {
    let guard = process.acquire(fresh_key()).within(LONG).await.unwrap();
    guard.release().await.unwrap();
}

async fn drop_slots_at_any_poll<W: SessionWorld>(world: &W, process: &Locks, pools: &[Slots], taken: usize) {
    let before = View::held(markers(pools) + taken);
    for times in 0..5 {
        drop(poll_times(times, pools[0].try_acquire()).await);
        pass_through(process).await;
        world.settles_to(before).await;
        drop(poll_times(times, pools[0].acquire().within(LONG)).await);
        pass_through(process).await;
        world.settles_to(before).await;
        drop(poll_times(times, pools[0].acquire().without_limit()).await);
        pass_through(process).await;
        world.settles_to(before).await;
    }
    for micros in (0..2_000).step_by(100) {
        let moment = Duration::from_micros(micros);
        drop(drive_for(moment, pools[0].try_acquire()).await);
        drop(drive_for(moment, pools[0].acquire().without_limit()).await);
        pass_through(process).await;
        world.settles_to(before).await;
    }
}

/// Random drops by many tasks of three processes, over keys and slots, leave nothing.
pub async fn random_drops_by_many_tasks_leave_nothing<W: SessionWorld>(world: &W) {
    world.allow(CANCELLED, usize::MAX);
    let keys = [fresh_key(), fresh_key(), fresh_key()];
    let meter = Meter::default();
    let mut tasks = JoinSet::new();
    for _ in 0..3 {
        let process = world.process().await;
        for _ in 0..8 {
            tasks.spawn(drop_at_random(process.clone(), keys, meter.clone(), 60));
        }
    }
    while let Some(done) = tasks.join_next().await {
        done.unwrap();
    }
    assert!(meter.visits() > 0, "nothing was ever granted");
}

async fn drop_at_random(process: Locks, keys: [Key; 3], meter: Meter, rounds: usize) {
    let slots = process.slots("pool", 2).unwrap();
    for _ in 0..rounds {
        let time = Duration::from_micros(fastrand::u64(..4_000));
        let mode = MODES[fastrand::usize(..2)];
        let key = keys[fastrand::usize(..keys.len())];
        let asked = process.acquire(key).mode(mode);
        let guard = match fastrand::u8(..6) {
            0 => drive_for(time, process.try_acquire(key).mode(mode))
                .await
                .and_then(|answer| answer.unwrap()),
            1 => drive_for(time, asked.within(time / 2)).await.and_then(Result::ok),
            2 => tokio::time::timeout(time, asked.without_limit())
                .await
                .ok()
                .map(|answer| answer.unwrap()),
            3 => drive_for(time, asked.without_limit())
                .await
                .map(|answer| answer.unwrap()),
            _ => {
                let permit = drive_for(time, slots.acquire().within(time / 2))
                    .await
                    .and_then(Result::ok);
                let inside = permit.as_ref().map(|permit| meter.enter(permit.key(), Mode::Exclusive));
                tokio::task::yield_now().await;
                drop(inside);
                None
            }
        };
        if let Some(guard) = guard {
            let inside = meter.enter(key, mode);
            sleep(Duration::from_micros(fastrand::u64(..500))).await;
            drop(inside);
            drop(guard);
        }
    }
}
