//! What a guard knows of the session that its lock lives on.

use std::{
    fmt,
    future::pending,
    pin::pin,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::Duration,
};

use tokio::{sync::Notify, time::sleep};

use crate::clock::{Clock, Moment};

/// How far a hold can be believed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum HoldState {
    /// The lock is held.
    Held,
    /// The connection is in doubt: not held as far as anyone may believe, not yet lost.
    Suspended,
    /// The hold ended without our release, and does not come back.
    Lost,
}

/// The health of one session of an engine, shared by the engine and by every guard whose lock lives on that session.
///
/// Only the engine moves it. Guards read it without blocking: a lock is believed in while the session is not lost and
/// the clock has not passed the moment until which the engine trusts the session.
///
/// Clones are the same session.
#[derive(Clone)]
pub struct SessionHealth {
    id: u64,
    clock: Clock,
    belief: Arc<Belief>,
}

struct Belief {
    trusted_until: AtomicU64,
    lost: AtomicBool,
    changed: Notify,
}

impl SessionHealth {
    /// A session that is trusted until `trusted_until` ([`Moment::NEVER`] for an engine that cannot lose a session).
    ///
    /// The `id` is the engine's own; it tells the engine's sessions apart for as long as the engine lives.
    #[must_use]
    pub fn new(id: u64, clock: Clock, trusted_until: Moment) -> Self {
        Self {
            id,
            clock,
            belief: Arc::new(Belief {
                trusted_until: AtomicU64::new(trusted_until.as_nanos()),
                lost: AtomicBool::new(false),
                changed: Notify::new(),
            }),
        }
    }

    /// The engine's number for this session.
    #[must_use]
    pub const fn id(&self) -> u64 {
        self.id
    }

    /// The clock that trust in this session is measured on.
    #[must_use]
    pub const fn clock(&self) -> &Clock {
        &self.clock
    }

    /// Moves the moment until which the session is trusted.
    ///
    /// An engine calls this when the server has answered, with the moment at which it *sent* the statement plus the
    /// time that it trusts an answer. Once the moment has passed, the engine must first confirm that the session still
    /// holds its locks.
    pub fn trust_until(&self, moment: Moment) {
        let before = self.belief.trusted_until.swap(moment.as_nanos(), Ordering::AcqRel);
        if before <= self.clock.now().as_nanos() {
            self.belief.changed.notify_waiters();
        }
    }

    /// Takes the trust away without giving the session up.
    pub fn suspend(&self) {
        self.belief.trusted_until.store(0, Ordering::Release);
        self.belief.changed.notify_waiters();
    }

    /// Gives the session up: every lock on it is lost, once and for all.
    pub fn lose(&self) {
        self.belief.lost.store(true, Ordering::Release);
        self.belief.changed.notify_waiters();
    }

    /// Whether locks on this session can be believed in right now.
    #[must_use]
    pub fn is_trusted(&self) -> bool {
        !self.is_lost() && self.clock.now().as_nanos() < self.belief.trusted_until.load(Ordering::Acquire)
    }

    /// Whether the session was given up.
    #[must_use]
    pub fn is_lost(&self) -> bool {
        self.belief.lost.load(Ordering::Acquire)
    }

    /// How far a lock on this session can be believed right now.
    #[must_use]
    pub fn state(&self) -> HoldState {
        if self.is_lost() {
            HoldState::Lost
        } else if self.is_trusted() {
            HoldState::Held
        } else {
            HoldState::Suspended
        }
    }

    /// Resolves when the session was given up; never otherwise.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future has no effect.
    pub async fn lost(&self) {
        loop {
            let mut changed = pin!(self.belief.changed.notified());
            // Registered before the flag is read, so that a loss in between is not missed.
            changed.as_mut().enable();
            if self.is_lost() {
                return;
            }
            changed.await;
        }
    }

    /// Resolves when a lock on this session is not in `state` any more, to the state that it is in then.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future has no effect.
    pub async fn left(&self, state: HoldState) -> HoldState {
        loop {
            let mut changed = pin!(self.belief.changed.notified());
            changed.as_mut().enable();
            let now = self.state();
            if now != state {
                return now;
            }
            // Trust ends by itself.
            let trusted_until = Moment::from_nanos(self.belief.trusted_until.load(Ordering::Acquire));
            let lapses = async {
                match state {
                    // In parts: timers stand still while the machine is suspended.
                    HoldState::Held => sleep(trusted_until.since(self.clock.now()).min(LOOK_AGAIN)).await,
                    HoldState::Suspended | HoldState::Lost => pending().await,
                }
            };
            tokio::select! {
                () = changed => {}
                () = lapses => {}
            }
        }
    }
}

/// After how long it is looked at the clock at the latest.
const LOOK_AGAIN: Duration = Duration::from_secs(1);

impl fmt::Debug for SessionHealth {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SessionHealth")
            .field("id", &self.id)
            .field("state", &self.state())
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    #[test]
    fn trust_lapses_with_the_clock_and_loss_is_final() {
        let (clock, hand) = Clock::manual();
        let health = SessionHealth::new(1, clock.clone(), clock.now().after(Duration::from_secs(5)));
        assert_eq!(health.state(), HoldState::Held);
        hand.advance(Duration::from_secs(5));
        assert_eq!(health.state(), HoldState::Suspended);
        health.trust_until(clock.now().after(Duration::from_secs(5)));
        assert_eq!(health.state(), HoldState::Held);
        health.lose();
        health.trust_until(Moment::NEVER);
        assert_eq!(health.state(), HoldState::Lost);
    }

    #[tokio::test]
    async fn lost_resolves_for_waiters_before_and_after() {
        let health = Arc::new(SessionHealth::new(1, Clock::system(), Moment::NEVER));
        let waiting = tokio::spawn({
            let health = Arc::clone(&health);
            async move { health.lost().await }
        });
        tokio::task::yield_now().await;
        health.lose();
        waiting.await.unwrap();
        health.lost().await;
    }

    #[tokio::test(start_paused = true)]
    async fn each_change_of_state_is_told_whether_it_was_made_or_came_with_time() {
        let clock = Clock::of_tokio();
        let health = SessionHealth::new(1, clock.clone(), clock.now().after(Duration::from_secs(5)));
        assert_eq!(health.left(HoldState::Held).await, HoldState::Suspended);
        assert_eq!(clock.now(), Moment::default().after(Duration::from_secs(5)));
        let (one, _) = tokio::join!(health.left(HoldState::Suspended), async {
            health.trust_until(clock.now().after(Duration::from_secs(5)));
        });
        assert_eq!(one, HoldState::Held);
        let (one, _) = tokio::join!(health.left(HoldState::Held), async { health.suspend() });
        assert_eq!(one, HoldState::Suspended);
        let (one, _) = tokio::join!(health.left(HoldState::Suspended), async { health.lose() });
        assert_eq!(one, HoldState::Lost);
    }
}
