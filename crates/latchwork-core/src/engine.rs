//! What an engine does for the gate: the seam between the policies of this crate and a lock server.
//!
//! An engine takes requests without blocking and answers each of them exactly once, from any thread, through the reply
//! that came with it. It has no futures: all waiting is done by the gate, and a reply whose receiver has gone undoes
//! its own grant. The gate vouches that it never asks for a key that it already holds, except through
//! [`Attempt::Probe`].

mod error;
mod fenced;
mod incumbent;
mod ledger;
mod slots;

use std::{
    fmt::{self, Debug},
    sync::{Arc, Weak},
};

use tokio::sync::oneshot;

pub use error::{EngineError, EngineErrorKind};
pub(crate) use fenced::FencedHold;
pub use fenced::{FencedGrant, FencedRelease, FencedReply, FencedRequest};
pub use incumbent::{IncumbentReply, IncumbentRequest};
pub use ledger::{ClaimRequest, LedgerReply, LedgerRequest, ReadRequest, RecordRequest};
pub use slots::{AnnounceReply, AnnounceRequest, Announced, Candidates, SlotsReply, SlotsRequest};

use crate::{
    clock::{Clock, Moment},
    key::Key,
    locks::{Inner, ShardHandle},
    mode::Mode,
    session::SessionHealth,
    slots::Pool,
};

/// A lock server as the gate sees it.
pub trait Engine: Debug + Send + Sync + 'static {
    /// Gives the engine the way to report what happens to its sessions. Called once, before any request.
    fn attach(&self, events: EngineEvents);

    /// Takes a request for one key.
    fn acquire(&self, request: AcquireRequest);

    /// Ends an [`Attempt::Queue`] or [`Attempt::Poll`] that nobody waits for any more. The attempt is answered all the
    /// same: with the grant if it came first, else with `Ok(None)`. The engine was given the request before; if it does
    /// not know the flight, it has answered it, and there is nothing to do.
    fn abandon(&self, key: Key, flight: u64);

    /// Takes a key back. For a grant that is [`ordered`](Grant::ordered), a later request for the same key must reach
    /// the server behind this one.
    fn release(&self, request: ReleaseRequest);

    /// Takes a request for some of several keys.
    fn take_slots(&self, request: SlotsRequest);

    /// Takes a request for a fenced grant.
    fn acquire_fenced(&self, request: FencedRequest);

    /// Asks who holds a key, in whichever process.
    fn incumbent(&self, request: IncumbentRequest);

    /// Takes a request for the ledger of ticks.
    fn ledger(&self, request: LedgerRequest);

    /// Tells other processes that this one uses a pool of slots with some limit, and asks which other limits they told.
    fn announce(&self, request: AnnounceRequest);

    /// Stops taking requests, finishes the releases that it has, ends its sessions, and answers.
    fn close(&self, done: oneshot::Sender<()>);

    /// Why the server can't be asked at the moment; `None` while it can.
    fn outage(&self) -> Option<EngineError>;

    /// The clock that the engine's sessions are trusted on.
    fn clock(&self) -> Clock;
}

/// How hard to try for a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Attempt {
    /// Asks once and answers `Ok(None)` if the key is not free. A `patient` attempt waits for a connection where there
    /// is none; any other is answered with [`EngineErrorKind::Unavailable`] at once.
    Once {
        /// Whether the attempt outlives an outage.
        patient: bool,
    },
    /// Queues in the server until the key is granted or the attempt is abandoned.
    Queue {
        /// When the first of those who wait will lose interest. The engine may answer `Ok(None)` at this moment, which
        /// spares it from being abandoned.
        until: Moment,
        /// Whether to leave the key to others for one poll interval first: this process has had many turns in a row,
        /// and those who poll have no place in a queue.
        stay_off: bool,
    },
    /// Asks at intervals until the key is granted or the attempt is abandoned; for the first time after one interval.
    Poll,
    /// Finds out whether a further shared holder would be granted the key now, although this process holds it shared:
    /// `Ok(None)` if somebody queues for it. The grant in the answer is not a new one and is never released.
    Probe,
}

/// A lock that the server has granted.
///
/// The gate counts the time that a process may hand a key on from the moment at which its grant was made, on the clock
/// of the session. So an engine makes a grant anew for each answer of the server; clones are for what came in one answer.
#[derive(Clone, Debug)]
pub struct Grant {
    session: Arc<SessionHealth>,
    ordered: bool,
    at: Moment,
}

impl Grant {
    /// A grant on the session with this health, whose release is ordered before later requests for the same key.
    #[must_use]
    pub fn new(session: Arc<SessionHealth>) -> Self {
        Self {
            at: session.clock().now(),
            session,
            ordered: true,
        }
    }

    /// A grant on a session that requests for the same key do not go through: the gate asks for the key again only
    /// after the release was answered.
    #[must_use]
    pub fn unordered(session: Arc<SessionHealth>) -> Self {
        Self {
            ordered: false,
            ..Self::new(session)
        }
    }

    /// The same grant with the session counted elsewhere.
    pub(crate) const fn on(&self, session: Arc<SessionHealth>) -> Self {
        Self { session, ..*self }
    }

    /// The session that the lock lives on.
    #[must_use]
    pub const fn session(&self) -> &Arc<SessionHealth> {
        &self.session
    }

    pub(crate) fn into_session(self) -> Arc<SessionHealth> {
        self.session
    }

    /// When the engine has made this of the server's answer.
    pub(crate) const fn at(&self) -> Moment {
        self.at
    }

    /// Whether the release is ordered before later requests for the same key.
    #[must_use]
    pub const fn ordered(&self) -> bool {
        self.ordered
    }
}

/// A request for one key.
#[derive(Debug)]
#[non_exhaustive]
pub struct AcquireRequest {
    /// The key that is wanted.
    pub key: Key,
    /// How it is to be held.
    pub mode: Mode,
    /// How hard to try.
    pub attempt: Attempt,
    /// Where the answer goes.
    pub reply: AcquireReply,
}

impl AcquireRequest {
    pub(crate) const fn new(key: Key, mode: Mode, attempt: Attempt, reply: AcquireReply) -> Self {
        Self {
            key,
            mode,
            attempt,
            reply,
        }
    }

    /// The number that [`Engine::abandon`] names this request by; unique for its key.
    #[must_use]
    pub const fn flight(&self) -> u64 {
        self.reply.flight
    }
}

/// Takes the answer to an [`AcquireRequest`]. Dropped unanswered, it answers [`EngineErrorKind::ConnectionLost`].
pub struct AcquireReply {
    gate: Option<Arc<ShardHandle>>,
    key: Key,
    flight: u64,
}

impl AcquireReply {
    pub(crate) const fn new(gate: Arc<ShardHandle>, key: Key, flight: u64) -> Self {
        Self {
            gate: Some(gate),
            key,
            flight,
        }
    }

    /// Hands the answer to the gate. A grant that nobody waits for any more is released at once. A grant on a session
    /// that is lost by now counts as a connection that was lost, and is not released.
    pub fn send(mut self, answer: Result<Option<Grant>, EngineError>) {
        if let Some(gate) = self.gate.take() {
            gate.answered(self.key, self.flight, answer);
        }
    }
}

impl Drop for AcquireReply {
    fn drop(&mut self) {
        if let Some(gate) = self.gate.take() {
            gate.answered(self.key, self.flight, Err(EngineError::connection_lost()));
        }
    }
}

impl Debug for AcquireReply {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AcquireReply")
            .field("key", &self.key)
            .field("flight", &self.flight)
            .finish_non_exhaustive()
    }
}

/// A request to take a key back.
#[derive(Debug)]
#[non_exhaustive]
pub struct ReleaseRequest {
    /// The key that is given up.
    pub key: Key,
    /// How it was held.
    pub mode: Mode,
    /// What the engine had granted.
    pub grant: Grant,
    /// Where the answer goes.
    pub reply: ReleaseReply,
}

impl ReleaseRequest {
    pub(crate) const fn new(key: Key, mode: Mode, grant: Grant, reply: ReleaseReply) -> Self {
        Self {
            key,
            mode,
            grant,
            reply,
        }
    }
}

/// Takes the answer to a [`ReleaseRequest`]: whether the server still held the lock. Dropped unanswered, it answers
/// [`EngineErrorKind::ConnectionLost`].
#[derive(Default)]
pub struct ReleaseReply {
    settle: Option<Settle>,
    waiter: Option<oneshot::Sender<Result<bool, EngineError>>>,
}

/// Who asks again for a key once an unordered release was answered.
pub(crate) enum Settle {
    Gate(Arc<ShardHandle>, Key, u64),
    Slot(Arc<Pool>, u32),
}

impl ReleaseReply {
    pub(crate) const fn new(
        settle: Option<Settle>,
        waiter: Option<oneshot::Sender<Result<bool, EngineError>>>,
    ) -> Self {
        Self { settle, waiter }
    }

    /// Whether anybody looks at the answer; an engine may skip what only serves the answer if not.
    #[must_use]
    pub const fn is_wanted(&self) -> bool {
        self.settle.is_some() || self.waiter.is_some()
    }

    /// Hands over the answer: `true` if the server held the lock until now.
    pub fn send(mut self, answer: Result<bool, EngineError>) {
        self.answer(answer);
    }

    fn answer(&mut self, answer: Result<bool, EngineError>) {
        if let Some(waiter) = self.waiter.take() {
            // The one who asked may have gone; the release has happened all the same.
            let _ = waiter.send(answer);
        }
        match self.settle.take() {
            Some(Settle::Gate(gate, key, turn)) => gate.settled(key, turn),
            Some(Settle::Slot(pool, slot)) => pool.settled(slot),
            None => {}
        }
    }
}

impl Drop for ReleaseReply {
    fn drop(&mut self) {
        if self.is_wanted() {
            self.answer(Err(EngineError::connection_lost()));
        }
    }
}

impl Debug for ReleaseReply {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ReleaseReply")
            .field("is_wanted", &self.is_wanted())
            .finish_non_exhaustive()
    }
}

/// The way for an engine to report what happens to its sessions.
#[derive(Clone, Debug)]
pub struct EngineEvents {
    gate: Weak<Inner>,
}

impl EngineEvents {
    pub(crate) const fn new(gate: Weak<Inner>) -> Self {
        Self { gate }
    }

    /// Reports that a session is lost. The engine calls [`SessionHealth::lose`] first; those who wait behind a lost
    /// lock ask again.
    pub fn session_lost(&self, session: &SessionHealth) {
        if let Some(gate) = self.gate.upgrade() {
            gate.session_lost(session);
        }
    }

    /// Reports that the server has not answered in time, so that those who asked for one attempt are told now and not
    /// when the connection is given up.
    pub fn server_silent(&self, error: &EngineError) {
        if let Some(gate) = self.gate.upgrade() {
            gate.server_silent(error);
        }
    }
}
