//! One who competes for keys, in session scope or in transaction scope.

use std::error::Error;
use std::fmt::Debug;
use std::future::Future;
use std::time::{Duration, Instant};

use latchwork_core::{AcquireError, Guard, Key, Locks, Mode};

use crate::polling::step;
use crate::world::SETTLES;

/// Waits until a process holds or wants so many keys, and no others are on their way.
pub(crate) async fn gate_shrinks_to(process: &Locks, keys: usize) {
    let begun = Instant::now();
    while process.stats().keys != keys {
        assert!(begun.elapsed() < SETTLES, "{:?}, not {keys} keys", process.stats());
        step().await;
    }
}

/// Why somebody has not got a key.
#[derive(Debug)]
#[expect(clippy::exhaustive_enums, reason = "the suite is not a library for others")]
pub enum Failure {
    /// Others had it until the limit ran out.
    TimedOut,
    /// Anything else.
    Other(Box<dyn Error + Send + Sync>),
}

/// One who competes for keys.
pub trait Party {
    /// A key that is held.
    type Hold<'a>: Hold
    where
        Self: 'a;

    /// Tries once.
    fn try_hold(&mut self, key: Key, mode: Mode) -> impl Future<Output = Result<Option<Self::Hold<'_>>, Failure>>;

    /// Waits, for a limit if there is one.
    fn hold(
        &mut self,
        key: Key,
        mode: Mode,
        limit: Option<Duration>,
    ) -> impl Future<Output = Result<Self::Hold<'_>, Failure>>;

    /// Waits until nothing that was dropped is on its way to the server any more. To be called by one who holds
    /// nothing.
    fn come_to_rest(&mut self) -> impl Future<Output = ()>;
}

/// A key that is held. Dropping it gives it up.
pub trait Hold: Debug {
    /// Gives the key up, and fails the test if it was not held to the end.
    fn give_up(self) -> impl Future<Output = ()>;
}

impl From<AcquireError> for Failure {
    fn from(error: AcquireError) -> Self {
        if error.is_timeout() {
            Self::TimedOut
        } else {
            Self::Other(error.into())
        }
    }
}

impl Party for Locks {
    type Hold<'a> = Guard;

    async fn try_hold(&mut self, key: Key, mode: Mode) -> Result<Option<Guard>, Failure> {
        Ok(self.try_acquire(key).mode(mode).await?)
    }

    async fn hold(&mut self, key: Key, mode: Mode, limit: Option<Duration>) -> Result<Guard, Failure> {
        let asked = self.acquire(key).mode(mode);
        Ok(match limit {
            Some(limit) => asked.within(limit).await?,
            None => asked.without_limit().await?,
        })
    }

    async fn come_to_rest(&mut self) {
        gate_shrinks_to(self, 0).await;
    }
}

impl Hold for Guard {
    async fn give_up(self) {
        assert!(self.is_held(), "{self:?}");
        self.release().await.unwrap();
    }
}
