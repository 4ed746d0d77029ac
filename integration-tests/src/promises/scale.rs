//! Many at once.

use futures_util::future::join_all;
use latchwork_core::{Key, Mode};
use tokio::task::JoinSet;

use super::fresh_key;
use crate::meter::Meter;
use crate::polling::step;
use crate::world::{LONG, View};
use crate::{SessionWorld, Setup};

/// A thousand tasks of one process wait for a key that another process holds: the server sees one of them, and each has
/// its turn.
pub async fn a_thousand_waiters_of_one_process_are_served<W: SessionWorld>(world: &W) {
    const WAITERS: usize = 1_000;
    let (one, two) = (world.process().await, world.process().await);
    let (key, meter) = (fresh_key(), Meter::default());
    let hold = one.acquire(key).within(LONG).await.unwrap();
    let mut tasks = JoinSet::new();
    for _ in 0..WAITERS {
        let (two, meter) = (two.clone(), meter.clone());
        tasks.spawn(async move {
            let guard = two.acquire(key).within(LONG).await.unwrap();
            drop(meter.enter(key, Mode::Exclusive));
            drop(guard);
        });
    }
    let waiting = usize::from(W::QUEUES);
    world.becomes(View { held: 1, waiting }).await;
    assert_eq!(meter.visits(), 0);
    for _ in 0..20 {
        assert_eq!(world.view().await.waiting, waiting);
        step().await;
    }
    hold.release().await.unwrap();
    while let Some(done) = tasks.join_next().await {
        done.unwrap();
    }
    assert_eq!(meter.visits(), WAITERS);
}

/// Ten thousand keys are held at once on one session, and all are released.
pub async fn ten_thousand_keys_are_held_and_released<W: SessionWorld>(world: &W) {
    const KEYS: usize = 10_000;
    let setup = Setup {
        locks: Some(KEYS + 10),
        ..Setup::default()
    };
    let (process, other) = (world.process_with(setup).await, world.process().await);
    let base = fastrand::i64(..) >> 1;
    let key = |number: usize| Key::bigint(base + i64::try_from(number).unwrap());
    let guards = join_all((0..KEYS).map(|number| process.try_acquire(key(number)))).await;
    let mut guards: Vec<_> = guards.into_iter().map(|answer| answer.unwrap().unwrap()).collect();
    world.becomes(View::held(KEYS)).await;
    for _ in 0..100 {
        assert!(other.try_acquire(key(fastrand::usize(..KEYS))).await.unwrap().is_none());
    }
    assert!(guards.iter().all(latchwork_core::Guard::is_held));
    drop(guards.split_off(KEYS / 2));
    world.becomes(View::held(KEYS / 2)).await;
    for released in join_all(guards.into_iter().map(latchwork_core::Guard::release)).await {
        released.unwrap();
    }
    world.settles_to(View::NOTHING).await;
}
