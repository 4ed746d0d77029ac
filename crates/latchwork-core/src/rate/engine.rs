//! What an engine does for rate limits: the seam between the front and a database.

use std::fmt::{self, Debug};

use tokio::sync::oneshot;

use super::{MAX_QUOTAS, Quota, Quotas};
use crate::{
    clock::{Clock, Moment},
    engine::EngineError,
    key::Key,
};

/// A keeper of theoretical arrival times.
///
/// It takes requests without blocking and answers each of them exactly once, from any thread, through the reply that came
/// with it. It has no futures. It answers in bounded time, whatever happens to its database.
pub trait RateEngine: Debug + Send + Sync + 'static {
    /// Takes a request. Requests for one row are decided in the order in which they came.
    fn charge(&self, request: ChargeRequest);

    /// Stops taking requests, ends the engine's sessions, and answers.
    fn close(&self, done: oneshot::Sender<()>);

    /// The clock that [`Charged::at`] is read on.
    fn clock(&self) -> Clock;
}

/// What is kept for one key and one list of quotas.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct RateRow {
    key: i64,
    quotas: i64,
}

impl RateRow {
    /// The row of a key and its quotas.
    #[must_use]
    pub fn new(key: Key, quotas: &Quotas) -> Self {
        match (key.as_bigint(), key.as_pair()) {
            (None, Some((first, second))) => Self {
                key: (i64::from(first) << 32) | i64::from(second.cast_unsigned()),
                quotas: quotas.id() | 1,
            },
            (number, _) => Self {
                key: number.unwrap_or_default(),
                quotas: quotas.id(),
            },
        }
    }

    /// The key as a number; a pair of numbers as the high and the low half.
    #[must_use]
    pub const fn key(self) -> i64 {
        self.key
    }

    /// The number of the quotas. Its lowest bit says whether the key is a pair.
    #[must_use]
    pub const fn quotas(self) -> i64 {
        self.quotas
    }
}

/// A request to charge one row.
#[derive(Debug)]
#[non_exhaustive]
pub struct ChargeRequest {
    /// The row that is charged.
    pub row: RateRow,
    /// What it is held against.
    pub quotas: Quotas,
    /// How many units are charged, at most [`Quotas::highest_cost`]. With 0 nothing is, and the answer tells how things
    /// are.
    pub cost: u32,
    /// Where the answer goes.
    pub reply: ChargeReply,
}

impl ChargeRequest {
    pub(super) const fn new(row: RateRow, quotas: Quotas, cost: u32, reply: ChargeReply) -> Self {
        Self {
            row,
            quotas,
            cost,
            reply,
        }
    }

    /// What an allowed request moves the theoretical arrival time of each quota on by, in nanoseconds; at most ten years.
    pub fn steps(&self) -> impl Iterator<Item = u64> {
        let cost = self.cost;
        self.quotas.as_slice().iter().map(move |quota| quota.step(cost))
    }

    /// How far the theoretical arrival time of each quota may come to lie ahead of the present, in nanoseconds; at most
    /// ten years.
    pub fn tolerances(&self) -> impl Iterator<Item = u64> {
        self.quotas.as_slice().iter().map(Quota::tolerance)
    }
}

/// What came of a charge.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Charged {
    /// Whether it was allowed. If not, nothing was charged.
    pub allowed: bool,
    /// How far the theoretical arrival time of each quota lies ahead of the present now, in nanoseconds; 0 if it has
    /// passed. In the order of the quotas, and 0 beyond the last.
    pub ahead: [u64; MAX_QUOTAS],
    /// A moment that is not after the one that the database decided at.
    pub at: Moment,
}

impl Charged {
    /// An answer.
    #[must_use]
    pub const fn new(allowed: bool, ahead: [u64; MAX_QUOTAS], at: Moment) -> Self {
        Self { allowed, ahead, at }
    }
}

/// Takes the answer to a [`ChargeRequest`]. Dropped unanswered, it answers
/// [`EngineErrorKind::ConnectionLost`](crate::engine::EngineErrorKind::ConnectionLost).
pub struct ChargeReply {
    waiter: Option<oneshot::Sender<Result<Charged, EngineError>>>,
}

impl ChargeReply {
    pub(super) const fn new(waiter: oneshot::Sender<Result<Charged, EngineError>>) -> Self {
        Self { waiter: Some(waiter) }
    }

    /// Whether anybody waits for the answer; if not, a request that was not sent yet may be dropped.
    #[must_use]
    pub fn is_wanted(&self) -> bool {
        self.waiter.as_ref().is_some_and(|waiter| !waiter.is_closed())
    }

    /// Hands the answer over.
    pub fn send(mut self, answer: Result<Charged, EngineError>) {
        self.answer(answer);
    }

    fn answer(&mut self, answer: Result<Charged, EngineError>) {
        if let Some(waiter) = self.waiter.take() {
            // Whoever asked may have gone; what was charged stays charged.
            let _ = waiter.send(answer);
        }
    }
}

impl Drop for ChargeReply {
    fn drop(&mut self) {
        self.answer(Err(EngineError::connection_lost()));
    }
}

impl Debug for ChargeReply {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ChargeReply")
            .field("is_wanted", &self.is_wanted())
            .finish()
    }
}
