//! One key of the gate.

use std::collections::VecDeque;

use super::HandOverBound;
use crate::{
    clock::Moment,
    engine::{Attempt, Grant},
    mode::Mode,
};

/// After so many turns in a row a process stays off the key for one poll interval before it queues: those who poll have
/// no place in the server's queue and would never find the key free.
const TURNS_BEFORE_STAYING_OFF: u8 = 8;

/// What one who enters wants.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Want {
    /// One attempt.
    Try,
    /// The key, queueing in the server, and until when.
    Queue { until: Moment },
    /// The key, asking at intervals.
    Poll,
}

impl Want {
    pub(super) const fn is_try(self) -> bool {
        matches!(self, Self::Try)
    }

    /// How the engine waits for one who wants the key like this.
    const fn waiting(self, stay_off: bool) -> Attempt {
        match self {
            Self::Try => Attempt::Once { patient: false },
            Self::Queue { until } => Attempt::Queue { until, stay_off },
            Self::Poll => Attempt::Poll,
        }
    }
}

/// One who waits in the gate.
#[derive(Debug)]
pub(super) struct Waiter<W> {
    pub(super) ticket: u64,
    pub(super) mode: Mode,
    pub(super) want: Want,
    pub(super) to: W,
}

/// A grant of the engine, and the local holders that rest on it.
#[derive(Debug)]
pub(super) struct Turn {
    pub(super) id: u64,
    pub(super) grant: Grant,
    pub(super) mode: Mode,
    pub(super) holders: u32,
    pub(super) since: Moment,
    pub(super) hand_overs: u32,
}

impl Turn {
    pub(super) fn is_within(&self, bound: HandOverBound, now: Moment) -> bool {
        self.hand_overs < bound.count && now.since(self.since) < bound.time
    }
}

/// What the entry waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    /// Nothing: the key is held.
    Held,
    /// Held shared, and the engine was asked whether anybody queues for the key.
    Probing { flight: u64 },
    /// The engine was asked for one attempt.
    Trying { flight: u64, mode: Mode },
    /// The engine waits for the key.
    Waiting { flight: u64, mode: Mode, polls: bool },
    /// The engine was told to stop waiting, and has not answered yet.
    Abandoning { flight: u64, mode: Mode },
    /// The engine was told to release a grant that is not ordered, and has not answered yet.
    Settling { turn: u64 },
}

/// The state of one key.
#[derive(Debug)]
pub(super) struct Entry<W> {
    pub(super) turn: Option<Turn>,
    pub(super) phase: Phase,
    pub(super) waiters: VecDeque<Waiter<W>>,
    /// How many turns this process has taken one after the other, each of them ended by the bound.
    pub(super) turns_in_a_row: u8,
    /// Start and hand-overs of a turn that goes on in the other mode.
    pub(super) carried: Option<(Moment, u32)>,
}

impl<W> Entry<W> {
    pub(super) const fn new(phase: Phase) -> Self {
        Self {
            turn: None,
            phase,
            waiters: VecDeque::new(),
            turns_in_a_row: 0,
            carried: None,
        }
    }

    /// The attempt that serves the waiter at the head, once the key was found not to be free.
    pub(super) fn waiting_for_head(&self) -> Option<(Mode, Attempt)> {
        let stay_off = self.turns_in_a_row >= TURNS_BEFORE_STAYING_OFF;
        self.waiters
            .front()
            .map(|head| (head.mode, head.want.waiting(stay_off)))
    }

    /// Whether the flight under way would serve the waiter at the head.
    pub(super) fn serves_head(&self, mode: Mode, polls: bool) -> bool {
        self.waiters
            .front()
            .is_some_and(|head| head.mode == mode && (head.want == Want::Poll) == polls)
    }

    /// Takes a waiter out of the queue. Tickets grow, so the queue is sorted by them.
    pub(super) fn remove(&mut self, ticket: u64) -> Option<Waiter<W>> {
        let at = self
            .waiters
            .binary_search_by_key(&ticket, |waiter| waiter.ticket)
            .ok()?;
        self.waiters.remove(at)
    }

    /// Takes all those who try out of the queue, if `which` says so.
    pub(super) fn drain_tries(&mut self, which: impl Fn(&Waiter<W>) -> bool) -> Vec<W> {
        if !self.waiters.iter().any(|waiter| waiter.want.is_try() && which(waiter)) {
            return Vec::new();
        }
        let (out, stay): (VecDeque<_>, VecDeque<_>) = self
            .waiters
            .drain(..)
            .partition(|waiter| waiter.want.is_try() && which(waiter));
        self.waiters = stay;
        out.into_iter().map(|waiter| waiter.to).collect()
    }
}
