//! Exclusion over processes and hosts.

use std::pin::pin;
use std::time::Duration;

use futures_util::future::join_all;
use latchwork_core::{Key, Mode};
use tokio::time::sleep;

use super::{MODES, fresh_key};
use crate::meter::Meter;
use crate::world::{LONG, View};
use crate::{Failure, Hold as _, Party, World};

/// The second one who wants a key gets it when the first gives it up, and not before.
pub async fn second_session_waits_until_release<W: World>(world: &W) {
    let (mut one, mut two) = (world.party().await, world.party().await);
    for limit in [Some(LONG), None] {
        let key = fresh_key();
        let first = one.hold(key, Mode::Exclusive, limit).await.unwrap();
        world.becomes(View::held(1)).await;
        let mut waiting = pin!(two.hold(key, Mode::Exclusive, limit));
        world.drive_until_waiting(1, waiting.as_mut()).await;
        let ((), second) = tokio::join!(first.give_up(), waiting);
        world.becomes(View::held(1)).await;
        second.unwrap().give_up().await;
        world.becomes(View::NOTHING).await;
    }
}

/// A try on a key that somebody holds is answered with nothing, at once, and leaves nobody waiting.
pub async fn a_try_on_a_held_key_is_answered_with_nothing<W: World>(world: &W) {
    let (mut one, mut two) = (world.party().await, world.party().await);
    let key = fresh_key();
    let hold = one.try_hold(key, Mode::Exclusive).await.unwrap().unwrap();
    for mode in MODES {
        assert!(two.try_hold(key, mode).await.unwrap().is_none());
        world.becomes(View::held(1)).await;
    }
    hold.give_up().await;
    let hold = two.try_hold(key, Mode::Exclusive).await.unwrap().unwrap();
    hold.give_up().await;
}

/// Shared holders hold together; an exclusive one comes when the last of them has gone.
pub async fn shared_holders_keep_an_exclusive_one_out_and_not_each_other<W: World>(world: &W) {
    let (mut one, mut two, mut three) = (world.party().await, world.party().await, world.party().await);
    let key = fresh_key();
    let first = one.hold(key, Mode::Shared, Some(LONG)).await.unwrap();
    let second = two.try_hold(key, Mode::Shared).await.unwrap().unwrap();
    world.becomes(View::held(2)).await;
    assert!(three.try_hold(key, Mode::Exclusive).await.unwrap().is_none());
    let mut waiting = pin!(three.hold(key, Mode::Exclusive, None));
    world.drive_until_waiting(1, waiting.as_mut()).await;
    first.give_up().await;
    world.drive_until_waiting(1, waiting.as_mut()).await;
    let ((), third) = tokio::join!(second.give_up(), waiting);
    assert!(one.try_hold(key, Mode::Shared).await.unwrap().is_none());
    third.unwrap().give_up().await;
}

/// A shared one waits for an exclusive holder, and then holds together with others.
pub async fn an_exclusive_holder_keeps_shared_ones_out<W: World>(world: &W) {
    let (mut one, mut two, mut three) = (world.party().await, world.party().await, world.party().await);
    let key = fresh_key();
    let first = one.hold(key, Mode::Exclusive, None).await.unwrap();
    let (mut second, mut third) = (
        pin!(two.hold(key, Mode::Shared, Some(LONG))),
        pin!(three.hold(key, Mode::Shared, None)),
    );
    world.drive_until_waiting(1, second.as_mut()).await;
    world.drive_until_waiting(2, third.as_mut()).await;
    let ((), second, third) = tokio::join!(first.give_up(), second, third);
    world.becomes(View::held(2)).await;
    second.unwrap().give_up().await;
    third.unwrap().give_up().await;
}

/// A number and a pair with the same bits are two keys, at the ends of their ranges too.
pub async fn bigint_and_pair_keys_are_disjoint<W: World>(world: &W) {
    let numbers = [0, 1, -1, i64::MIN, i64::MAX, 1 << 32, 7];
    let mut keys: Vec<Key> = numbers.map(Key::bigint).to_vec();
    keys.extend(numbers.map(|number| Key::pair((number >> 32) as i32, number as i32)));
    keys.push(Key::pair(i32::MIN, i32::MAX));
    let mut parties = join_all(keys.iter().map(|_| world.party())).await;
    let mut other = world.party().await;
    let mut holds = Vec::new();
    for (key, party) in keys.iter().zip(&mut parties) {
        holds.push(party.try_hold(*key, Mode::Exclusive).await.unwrap().unwrap());
    }
    world.becomes(View::held(keys.len())).await;
    for key in &keys {
        assert!(other.try_hold(*key, Mode::Exclusive).await.unwrap().is_none(), "{key}");
    }
    for hold in holds {
        hold.give_up().await;
    }
}

/// Under load, never two exclusive holders of a key, nor an exclusive one beside a shared one.
pub async fn no_two_hold_a_key_under_load<W: World>(world: &W) {
    const PARTIES: usize = 5;
    const ROUNDS: usize = 60;
    let keys = [fresh_key(), fresh_key(), Key::pair(1, 2)];
    let meter = Meter::default();
    let run = async |mut party: W::Party| {
        for _ in 0..ROUNDS {
            let key = keys[fastrand::usize(..keys.len())];
            let mode = if fastrand::u8(..) < 100 {
                Mode::Exclusive
            } else {
                Mode::Shared
            };
            let held = match fastrand::u8(..4) {
                0 => party.try_hold(key, mode).await,
                1 => party.hold(key, mode, Some(Duration::from_millis(2))).await.map(Some),
                2 => party.hold(key, mode, Some(LONG)).await.map(Some),
                _ => party.hold(key, mode, None).await.map(Some),
            };
            match held {
                Ok(Some(hold)) => {
                    let inside = meter.enter(key, mode);
                    sleep(Duration::from_micros(fastrand::u64(..1_500))).await;
                    drop(inside);
                    hold.give_up().await;
                }
                Ok(None) | Err(Failure::TimedOut) => {}
                Err(Failure::Other(error)) => panic!("{error:?}"),
            }
        }
    };
    let parties = join_all((0..PARTIES).map(|_| world.party())).await;
    join_all(parties.into_iter().map(run)).await;
    assert!(meter.visits() > PARTIES * ROUNDS / 3, "{} visits", meter.visits());
    assert!(meter.most_together() > 1, "shared holders never met");
}
