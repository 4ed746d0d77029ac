//! Time limits.

use std::pin::pin;
use std::time::{Duration, Instant};

use futures_util::future::join_all;
use latchwork_core::{AcquireError, Mode};

use super::cancellation::CANCELLED;
use super::{MODES, fresh_key};
use crate::meter::Meter;
use crate::polling::poll_once;
use crate::world::{LONG, View};
use crate::{Counting, Failure, Hold as _, Party, SessionWorld, World};

const TINY: [Duration; 5] = [
    Duration::from_nanos(1),
    Duration::from_micros(1),
    Duration::from_micros(300),
    Duration::from_micros(999),
    Duration::from_millis(1),
];

/// Lines about cancelled waits that are forgiven: one whose limit has run out is cancelled only if the task that waits
/// hears of it late, on a busy machine.
const FORGIVEN: usize = 2;

/// What a limit may be overrun by on a busy machine.
const SLACK: Duration = Duration::from_secs(2);

#[track_caller]
fn assert_timed_out<T: std::fmt::Debug>(answer: Result<T, Failure>) {
    assert!(matches!(answer, Err(Failure::TimedOut)), "{answer:?}");
}

/// With a limit of zero a free key is granted, and a held one is given up on at once.
pub async fn a_limit_of_zero_is_a_try<W: World>(world: &W) {
    let (mut one, mut two) = (world.party().await, world.party().await);
    for mode in MODES {
        let key = fresh_key();
        let hold = one.hold(key, Mode::Exclusive, Some(Duration::ZERO)).await.unwrap();
        let begun = Instant::now();
        assert_timed_out(two.hold(key, mode, Some(Duration::ZERO)).await);
        assert!(begun.elapsed() < SLACK, "{:?}", begun.elapsed());
        two.come_to_rest().await;
        world.settles_to(View::held(1)).await;
        hold.give_up().await;
    }
}

/// Limits below what a server's clock can tell run out, and are not taken for none.
pub async fn tiny_limits_run_out<W: World>(world: &W) {
    world.allow(CANCELLED, FORGIVEN);
    let (mut one, mut two) = (world.party().await, world.party().await);
    let key = fresh_key();
    let hold = one.hold(key, Mode::Exclusive, None).await.unwrap();
    for limit in TINY {
        for mode in MODES {
            let begun = Instant::now();
            assert_timed_out(two.hold(key, mode, Some(limit)).await);
            assert!(begun.elapsed() < SLACK, "{:?} for {limit:?}", begun.elapsed());
            two.come_to_rest().await;
            world.settles_to(View::held(1)).await;
        }
    }
    hold.give_up().await;
    for limit in TINY {
        // The limit may run out before the server can answer; nothing may be left then either.
        match two.hold(key, Mode::Exclusive, Some(limit)).await {
            Ok(hold) => hold.give_up().await,
            Err(error) => assert_timed_out(Err::<(), _>(error)),
        }
        two.come_to_rest().await;
        world.settles_to(View::NOTHING).await;
    }
}

/// A wait ends when its limit runs out, not earlier, and leaves no trace.
pub async fn a_limit_runs_out_in_time<W: World>(world: &W) {
    world.allow(CANCELLED, FORGIVEN);
    let (mut one, mut two) = (world.party().await, world.party().await);
    let key = fresh_key();
    let hold = one.hold(key, Mode::Exclusive, None).await.unwrap();
    for limit in [20, 70, 300].map(Duration::from_millis) {
        for mode in MODES {
            let begun = Instant::now();
            assert_timed_out(two.hold(key, mode, Some(limit)).await);
            let waited = begun.elapsed();
            assert!((limit..limit + SLACK).contains(&waited), "{waited:?} for {limit:?}");
            two.come_to_rest().await;
            world.settles_to(View::held(1)).await;
        }
    }
    hold.give_up().await;
}

/// Thousands of limits of 1 ms on keys that others want too leave nothing in the server.
pub async fn a_soak_of_short_limits_leaves_nothing<W: World>(world: &W) {
    const PARTIES: usize = 8;
    const ROUNDS: usize = 250;
    world.allow(CANCELLED, PARTIES * ROUNDS / 100);
    let keys = [fresh_key(), fresh_key()];
    let meter = Meter::default();
    let run = async |mut party: W::Party| {
        for _ in 0..ROUNDS {
            let key = keys[fastrand::usize(..keys.len())];
            let mode = if fastrand::u8(..4) > 0 {
                Mode::Exclusive
            } else {
                Mode::Shared
            };
            match party.hold(key, mode, Some(Duration::from_millis(1))).await {
                Ok(hold) => {
                    let inside = meter.enter(key, mode);
                    for _ in 0..fastrand::u8(..50) {
                        tokio::task::yield_now().await;
                    }
                    drop(inside);
                    hold.give_up().await;
                }
                Err(Failure::TimedOut) => {}
                Err(Failure::Other(error)) => panic!("{error:?}"),
            }
        }
    };
    let parties = join_all((0..PARTIES).map(|_| world.party())).await;
    join_all(parties.into_iter().map(run)).await;
    assert!(meter.visits() > 0, "no key was ever granted");
}

/// The limit covers the wait behind others of the same process, and what is left of it the wait in the server.
pub async fn a_limit_covers_the_local_queue_and_the_server<W: SessionWorld>(world: &W) {
    let (one, other) = (world.process().await, world.process().await);
    let key = fresh_key();
    let limit = Duration::from_millis(200);
    let hold = one.acquire(key).within(LONG).await.unwrap();
    let begun = Instant::now();
    let answer = one.acquire(key).within(limit).await;
    assert!(matches!(answer, Err(AcquireError::TimedOut { .. })), "{answer:?}");
    assert!(
        (limit..limit + SLACK).contains(&begun.elapsed()),
        "{:?}",
        begun.elapsed()
    );
    // Behind a local waiter who waits in the server.
    let mut first = pin!(other.acquire(key).without_limit());
    world.drive_until_waiting(1, first.as_mut()).await;
    let begun = Instant::now();
    let answer = other.acquire(key).within(limit).await;
    assert!(matches!(answer, Err(AcquireError::TimedOut { .. })), "{answer:?}");
    assert!(
        (limit..limit + SLACK).contains(&begun.elapsed()),
        "{:?}",
        begun.elapsed()
    );
    // The local holder goes while we wait; the rest of the limit is spent in the server.
    drop(hold);
    let local = first.await.unwrap();
    let begun = Instant::now();
    let mut second = pin!(other.acquire(key).within(limit));
    assert!(poll_once(second.as_mut()).await.is_pending());
    let mut third = pin!(one.acquire(key).without_limit());
    world.drive_until_waiting(1, third.as_mut()).await;
    drop(local);
    match second.await {
        Ok(guard) => drop(guard),
        Err(error) => assert!(error.is_timeout(), "{error:?}"),
    }
    assert!(begun.elapsed() < limit + SLACK, "{:?}", begun.elapsed());
    third.await.unwrap().release().await.unwrap();
}

/// A try, and a limit of zero, ask the server exactly once; for a key that the process holds itself, not at all.
pub async fn zero_asks_the_server_exactly_once<W: Counting>(world: &W) {
    world.count_attempts().await;
    let (process, other) = (world.process().await, world.process().await);
    let (free, held) = (fresh_key(), fresh_key());
    let hold = other.try_acquire(held).await.unwrap().unwrap();
    for mode in MODES {
        let before = world.attempts();
        assert!(process.try_acquire(held).mode(mode).await.unwrap().is_none());
        assert_eq!(world.attempts(), before + 1);
        let answer = process.acquire(held).mode(mode).within(Duration::ZERO).await;
        assert!(matches!(answer, Err(AcquireError::TimedOut { .. })), "{answer:?}");
        assert_eq!(world.attempts(), before + 2);
    }
    let before = world.attempts();
    let own = process.acquire(free).within(Duration::ZERO).await.unwrap();
    assert_eq!(world.attempts(), before + 1);
    assert!(process.try_acquire(free).await.unwrap().is_none());
    assert_eq!(world.attempts(), before + 1);
    drop((hold, own));
}
