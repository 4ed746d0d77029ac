//! Any acquiring future may be dropped at any moment.

use std::pin::pin;
use std::time::Duration;

use futures_util::future::join_all;
use latchwork_core::{Key, Mode};
use tokio::time::{sleep, timeout};

use super::{MODES, fresh_key};
use crate::meter::Meter;
use crate::polling::{drive_for, poll_times};
use crate::world::{LONG, View};
use crate::{Failure, Hold as _, Party, World};

pub(super) const CANCELLED: &str = "canceling statement due to user request";

/// How a key is asked for.
#[derive(Clone, Copy, Debug)]
enum Way {
    Try,
    Within(Duration),
    NoLimit,
}

const WAYS: [Way; 3] = [Way::Try, Way::Within(LONG), Way::NoLimit];

async fn ask<P: Party>(party: &mut P, key: Key, mode: Mode, way: Way) -> Option<P::Hold<'_>> {
    let answer = match way {
        Way::Try => party.try_hold(key, mode).await,
        Way::Within(limit) => party.hold(key, mode, Some(limit)).await.map(Some),
        Way::NoLimit => party.hold(key, mode, None).await.map(Some),
    };
    match answer {
        Ok(hold) => hold,
        Err(Failure::TimedOut) => None,
        Err(Failure::Other(error)) => panic!("{error:?}"),
    }
}

/// Moments from the first poll on at which a future is dropped.
fn moments(last: u64) -> impl Iterator<Item = Duration> {
    (0..last).step_by(60).map(Duration::from_micros)
}

/// Dropped after any number of polls, on a key that is free.
pub async fn dropped_at_any_poll_on_a_free_key<W: World>(world: &W) {
    let (mut one, mut two) = (world.party().await, world.party().await);
    let key = fresh_key();
    for (way, mode) in WAYS.into_iter().flat_map(|way| MODES.map(|mode| (way, mode))) {
        let mut times = 0;
        loop {
            let done = match poll_times(times, ask(&mut one, key, mode, way)).await {
                Some(hold) => {
                    world.becomes(View::held(1)).await;
                    hold.unwrap().give_up().await;
                    true
                }
                None => false,
            };
            one.come_to_rest().await;
            world.settles_to(View::NOTHING).await;
            let hold = two.try_hold(key, Mode::Exclusive).await.unwrap();
            hold.expect("the key is free").give_up().await;
            if done {
                break;
            }
            times += 1;
            assert!(times < 100, "{way:?} does not end");
        }
    }
}

/// Dropped at any moment, on a key that is free.
pub async fn dropped_at_any_moment_on_a_free_key<W: World>(world: &W) {
    let (mut one, mut two) = (world.party().await, world.party().await);
    let key = fresh_key();
    for (way, mode) in WAYS.into_iter().flat_map(|way| MODES.map(|mode| (way, mode))) {
        for moment in moments(1_500) {
            // A grant that arrives in the same moment is dropped unseen.
            drop(drive_for(moment, ask(&mut one, key, mode, way)).await);
            one.come_to_rest().await;
            world.settles_to(View::NOTHING).await;
            let hold = two.try_hold(key, Mode::Exclusive).await.unwrap();
            hold.expect("the key is free").give_up().await;
        }
    }
}

/// Dropped after any number of polls, at any moment, and while it stands in the server's queue, on a key that others
/// hold.
pub async fn dropped_at_any_poll_on_a_key_that_others_hold<W: World>(world: &W) {
    world.allow(CANCELLED, usize::MAX);
    let (mut one, mut two) = (world.party().await, world.party().await);
    let key = fresh_key();
    let hold = one.hold(key, Mode::Exclusive, None).await.unwrap();
    let ways = WAYS.into_iter().flat_map(|way| MODES.map(|mode| (way, mode)));
    let (polls, moment_step, way_step) = if W::LINGERS { (1..3, 200, 2) } else { (0..6, 11, 1) };
    for (way, mode) in ways.step_by(way_step) {
        for times in polls.clone() {
            let answer = poll_times(times, ask(&mut two, key, mode, way)).await;
            assert!(answer.flatten().is_none());
            two.come_to_rest().await;
            world.settles_to(View::held(1)).await;
        }
        for moment in moments(12_000).step_by(moment_step) {
            assert!(
                drive_for(moment, ask(&mut two, key, mode, way))
                    .await
                    .flatten()
                    .is_none()
            );
            two.come_to_rest().await;
            world.settles_to(View::held(1)).await;
        }
        if !matches!(way, Way::Try) {
            {
                let mut waiting = pin!(ask(&mut two, key, mode, way));
                world.drive_until_waiting(1, waiting.as_mut()).await;
            }
            two.come_to_rest().await;
            world.settles_to(View::held(1)).await;
        }
    }
    hold.give_up().await;
}

/// An abandoned exclusive wait no longer keeps shared ones out.
pub async fn a_dropped_wait_stands_in_nobodys_way<W: World>(world: &W) {
    world.allow(CANCELLED, usize::MAX);
    let (mut one, mut two, mut three) = (world.party().await, world.party().await, world.party().await);
    let key = fresh_key();
    let first = one.hold(key, Mode::Shared, None).await.unwrap();
    {
        let mut waiting = pin!(two.hold(key, Mode::Exclusive, Some(LONG)));
        world.drive_until_waiting(1, waiting.as_mut()).await;
    }
    two.come_to_rest().await;
    world.settles_to(View::held(1)).await;
    let third = three.try_hold(key, Mode::Shared).await.unwrap().unwrap();
    first.give_up().await;
    third.give_up().await;
}

/// Dropped at any moment after the holder has begun to give the key up.
pub async fn dropped_while_the_key_changes_hands<W: World>(world: &W) {
    world.allow(CANCELLED, usize::MAX);
    let (mut one, mut two) = (world.party().await, world.party().await);
    for (way, mode) in WAYS.into_iter().skip(1).flat_map(|way| MODES.map(|mode| (way, mode))) {
        for moment in moments(1_800).step_by(2) {
            let key = fresh_key();
            let hold = one.hold(key, Mode::Exclusive, None).await.unwrap();
            {
                let mut waiting = pin!(ask(&mut two, key, mode, way));
                world.drive_until_waiting(1, waiting.as_mut()).await;
                let ((), granted) = tokio::join!(hold.give_up(), drive_for(moment, waiting));
                if let Some(hold) = granted {
                    hold.unwrap().give_up().await;
                }
            }
            one.come_to_rest().await;
            two.come_to_rest().await;
            world.settles_to(View::NOTHING).await;
        }
    }
}

/// A thousand waits that are dropped at random moments leave nothing, and exclusion stands meanwhile.
pub async fn a_thousand_random_drops_leave_nothing<W: World>(world: &W) {
    const PARTIES: usize = 5;
    const ROUNDS: usize = 200;
    world.allow(CANCELLED, usize::MAX);
    let keys = [fresh_key(), fresh_key(), fresh_key()];
    let meter = Meter::default();
    let run = async |mut party: W::Party| {
        for _ in 0..ROUNDS {
            let key = keys[fastrand::usize(..keys.len())];
            let mode = MODES[fastrand::usize(..2)];
            let way = [
                Way::Try,
                Way::NoLimit,
                Way::Within(Duration::from_micros(fastrand::u64(..4_000))),
            ][fastrand::usize(..3)];
            let asked = ask(&mut party, key, mode, way);
            let drop_after = Duration::from_micros(fastrand::u64(..3_000));
            let answer = if fastrand::bool() {
                drive_for(drop_after, asked).await
            } else {
                timeout(drop_after, asked).await.ok()
            };
            if let Some(hold) = answer.flatten() {
                let inside = meter.enter(key, mode);
                sleep(Duration::from_micros(fastrand::u64(..1_000))).await;
                drop(inside);
                if fastrand::bool() {
                    hold.give_up().await;
                } else {
                    drop(hold);
                }
            }
        }
    };
    let parties = join_all((0..PARTIES).map(|_| world.party())).await;
    join_all(parties.into_iter().map(run)).await;
    assert!(meter.visits() > 0, "no key was ever granted");
}
