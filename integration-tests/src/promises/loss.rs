//! Losing a lock, and that nothing of the lost session is used again.

use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use latchwork_core::{Guard, HoldState, Locks, Mode, ReleaseError};
use tokio::time::timeout;

use super::{MODES, fresh_key};
use crate::world::{LONG, View};
use crate::{Hold as _, Party, SessionWorld, World};

/// When a holder's session ends, the one who waits has the key.
pub async fn others_get_the_key_of_a_session_that_ends<W: World>(world: &W) {
    for mode in MODES {
        let (mut one, mut two) = (world.party().await, world.party().await);
        let key = fresh_key();
        let first = one.hold(key, Mode::Exclusive, None).await.unwrap();
        {
            let mut waiting = pin!(two.hold(key, mode, Some(LONG)));
            world.drive_until_waiting(1, waiting.as_mut()).await;
            let ((), second) = tokio::join!(world.end_holders_of(key), waiting);
            let second = second.unwrap();
            if !W::ENDS_ALL {
                world.settles_to(View::held(1)).await;
                second.give_up().await;
            }
        }
        drop(first);
        let second = two.hold(key, mode, Some(LONG)).await.unwrap();
        world.settles_to(View::held(1)).await;
        second.give_up().await;
    }
}

async fn lost(guard: &Guard) {
    timeout(LONG, guard.lost()).await.expect("nobody told of the loss");
    assert_eq!(guard.state(), HoldState::Lost);
    assert!(!guard.is_held());
}

/// The holder learns of the loss, and its work is cancelled.
pub async fn the_holder_is_told_and_its_work_is_cancelled<W: SessionWorld>(world: &W) {
    struct Told(Arc<AtomicBool>);
    impl Drop for Told {
        fn drop(&mut self) {
            self.0.store(true, Ordering::SeqCst);
        }
    }

    let process = world.process().await;
    let key = fresh_key();
    let guard = process.acquire(key).within(LONG).await.unwrap();
    assert_eq!(guard.run(async { 7 }).await.unwrap(), 7);
    let cancelled = Arc::new(AtomicBool::new(false));
    let work = {
        let told = Told(Arc::clone(&cancelled));
        async move {
            let _told = told;
            std::future::pending::<()>().await;
        }
    };
    let mut running = Box::pin(timeout(LONG, guard.run(work)));
    let ((), answer) = tokio::join!(world.end_holders_of(key), running.as_mut());
    assert_eq!(answer.expect("the work went on").unwrap_err().key, key);
    assert!(cancelled.load(Ordering::SeqCst));
    drop(running);
    lost(&guard).await;
    // Whoever asks later is told as well.
    lost(&guard).await;
    assert!(guard.run(std::future::pending::<()>()).await.is_err());
    let answer = guard.release().await;
    assert!(
        matches!(answer, Err(ReleaseError::Lost { key: lost }) if lost == key),
        "{answer:?}"
    );
}

/// After a loss the process acquires again, on a new session, and the old guard does nothing to the new hold.
pub async fn an_old_guard_does_nothing_to_a_new_hold<W: SessionWorld>(world: &W) {
    for mode in MODES {
        let (process, other) = (world.process().await, world.process().await);
        let key = fresh_key();
        let old = [(); 3].map(|()| process.acquire(key).mode(Mode::Shared).within(LONG));
        let old = futures_util::future::join_all(old)
            .await
            .into_iter()
            .map(Result::unwrap);
        let mut old: Vec<Guard> = old.collect();
        world.becomes(View::held(1)).await;
        world.end_holders_of(key).await;
        for guard in &old {
            lost(guard).await;
        }
        let new = process.acquire(key).mode(mode).within(LONG).await.unwrap();
        assert!(new.is_held());
        drop(old.pop());
        let answer = old.pop().unwrap().release().await;
        assert!(matches!(answer, Err(ReleaseError::Lost { .. })), "{answer:?}");
        still_held(world, &new, &other).await;
        new.release().await.unwrap();
        let newest = other.acquire(key).within(LONG).await.unwrap();
        drop(old);
        still_held(world, &newest, &process).await;
    }
}

async fn still_held<W: SessionWorld>(world: &W, guard: &Guard, other: &Locks) {
    assert!(guard.is_held());
    assert!(other.try_acquire(guard.key()).await.unwrap().is_none());
    world.becomes(View::held(1)).await;
}

/// Those who wait in the process whose session was lost go on waiting, and are served.
pub async fn local_waiters_outlive_the_loss<W: SessionWorld>(world: &W) {
    let process = world.process().await;
    let key = fresh_key();
    let guard = process.acquire(key).within(LONG).await.unwrap();
    let waiting: Vec<_> = (0..5)
        .map(|_| {
            let process = process.clone();
            tokio::spawn(async move { process.acquire(key).within(LONG).await.unwrap().release().await })
        })
        .collect();
    world.becomes(View::held(1)).await;
    world.end_holders_of(key).await;
    lost(&guard).await;
    for waiting in waiting {
        waiting.await.unwrap().unwrap();
    }
    drop(guard);
}

/// A hold that was granted after a wait in the server's queue is told of its loss as well.
pub async fn a_hold_that_was_waited_for_is_lost_alike<W: SessionWorld>(world: &W) {
    let (one, two) = (world.process().await, world.process().await);
    let key = fresh_key();
    let first = one.acquire(key).within(LONG).await.unwrap();
    let mut waiting = pin!(two.acquire(key).within(LONG));
    world.drive_until_waiting(1, waiting.as_mut()).await;
    let (released, second) = tokio::join!(first.release(), waiting);
    released.unwrap();
    let second = second.unwrap();
    world.becomes(View::held(1)).await;
    world.end_holders_of(key).await;
    lost(&second).await;
    let third = one.acquire(key).within(LONG).await.unwrap();
    let answer = second.release().await;
    assert!(matches!(answer, Err(ReleaseError::Lost { .. })), "{answer:?}");
    still_held(world, &third, &two).await;
}

/// A permit is lost as a guard is, and its slot is free for others.
pub async fn a_permit_is_lost_and_its_slot_is_free_again<W: SessionWorld>(world: &W) {
    let (one, two) = (world.process().await, world.process().await);
    let (pool, others) = (one.slots("pool", 1).unwrap(), two.slots("pool", 1).unwrap());
    let permit = pool.acquire().within(LONG).await.unwrap();
    let mut waiting = pin!(others.acquire().within(LONG));
    assert!(crate::polling::poll_once(waiting.as_mut()).await.is_pending());
    world.end_holders_of(permit.key()).await;
    timeout(LONG, permit.lost()).await.expect("nobody told of the loss");
    assert!(!permit.is_held());
    let next = waiting.await.unwrap();
    let answer = permit.release().await;
    assert!(matches!(answer, Err(ReleaseError::Lost { .. })), "{answer:?}");
    assert!(pool.try_acquire().await.unwrap().is_none());
    next.release().await.unwrap();
    pool.acquire().within(LONG).await.unwrap().release().await.unwrap();
}
