//! One key of the gate.

use std::collections::VecDeque;

use super::{Action, Counters, HandOverBound};
use crate::{
    clock::{Clock, Moment},
    engine::{Attempt, Grant},
    key::Key,
    mode::Mode,
    session::HoldState,
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

    /// Whether one who wants the key like this has lost interest by `now`.
    pub(super) fn is_over(self, now: Moment) -> bool {
        matches!(self, Self::Queue { until } if until <= now)
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
    pub(super) fn is_within(&self, bound: HandOverBound, clock: &Clock) -> bool {
        self.hand_overs < bound.count && clock.now().since(self.since) < bound.time
    }
}

/// What the entry waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    /// Nothing, before the first of all has come.
    Idle,
    /// Nothing: the key is held.
    Held,
    /// Held shared, and the engine was asked whether anybody queues for the key.
    Probing { flight: u64 },
    /// The engine was asked for one attempt.
    Trying { flight: u64, mode: Mode },
    /// The engine waits for the key; it has the request if that was `sent`.
    Waiting {
        flight: u64,
        mode: Mode,
        polls: bool,
        sent: bool,
    },
    /// The engine was told to stop waiting, or will be when it has the request, and has not answered yet.
    Abandoning { flight: u64, mode: Mode },
    /// The key goes back, and the engine may not be asked for it yet.
    Settling { turn: u64 },
}

impl Phase {
    /// The flight whose answer is waited for, and the mode that it asks for.
    pub(super) const fn flight(self) -> Option<(u64, Mode)> {
        match self {
            Self::Idle | Self::Held | Self::Settling { .. } => None,
            Self::Probing { flight } => Some((flight, Mode::Shared)),
            Self::Trying { flight, mode } | Self::Waiting { flight, mode, .. } | Self::Abandoning { flight, mode } => {
                Some((flight, mode))
            }
        }
    }
}

/// What becomes of one who comes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Admission {
    /// Shares the hold that stands.
    Join,
    Deny,
    Fail,
    /// Waits, and the engine is asked.
    Start,
    /// The same, after a hold that was lost.
    StartAnew,
    /// Waits, and the engine is asked whether the hold that stands may be shared further.
    Probe,
    Wait,
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
    /// In a box, since few entries have one and there may be many entries.
    pub(super) carried: Option<Box<(Moment, u32)>>,
}

impl<W> Entry<W> {
    pub(super) const fn new() -> Self {
        Self {
            turn: None,
            phase: Phase::Idle,
            waiters: VecDeque::new(),
            turns_in_a_row: 0,
            carried: None,
        }
    }

    /// Begins a turn that nobody has joined yet.
    pub(super) fn begin_turn(&mut self, id: u64, grant: Grant, mode: Mode) {
        let (since, hand_overs) = self.carried.take().map_or_else(|| (grant.at(), 0), |carried| *carried);
        self.turn = Some(Turn {
            id,
            grant,
            mode,
            holders: 0,
            since,
            hand_overs,
        });
        self.phase = Phase::Held;
    }

    /// Judges one who comes.
    pub(super) fn admit(&self, mode: Mode, want: Want, bound: HandOverBound, clock: &Clock) -> Admission {
        let Some(turn) = &self.turn else {
            return match self.phase {
                Phase::Idle => Admission::Start,
                // A key that the engine waits for is not free; all other phases will soon know better.
                Phase::Waiting { .. } if want.is_try() => Admission::Deny,
                _ => Admission::Wait,
            };
        };
        match turn.grant.session().state() {
            HoldState::Held => {}
            HoldState::Lost => return Admission::StartAnew,
            HoldState::Suspended if want.is_try() => return Admission::Fail,
            HoldState::Suspended => return Admission::Wait,
        }
        let could_join = mode.is_compatible_with(turn.mode);
        match self.phase {
            Phase::Probing { .. } if could_join => Admission::Wait,
            _ if could_join && self.waiters.is_empty() => {
                if turn.is_within(bound, clock) {
                    Admission::Join
                } else {
                    Admission::Probe
                }
            }
            _ if want.is_try() => Admission::Deny,
            _ => Admission::Wait,
        }
    }

    /// Asks the engine for the waiter at the head of the queue.
    pub(super) fn start(&mut self, key: Key, flight: u64, actions: &mut Vec<Action<W>>) {
        let Some(head) = self.waiters.front() else { return };
        let (mode, patient) = (head.mode, !head.want.is_try());
        if patient && self.turns_in_a_row > 0 {
            // After a turn that the bound has ended, one does not simply try again: that would always win.
            self.wait(key, flight, actions);
            return;
        }
        self.phase = Phase::Trying { flight, mode };
        actions.push(Action::Acquire {
            key,
            mode,
            attempt: Attempt::Once { patient },
            flight,
        });
    }

    /// Has the engine wait for the key, for the waiter at the head of the queue.
    pub(super) fn wait(&mut self, key: Key, flight: u64, actions: &mut Vec<Action<W>>) {
        let Some(head) = self.waiters.front() else { return };
        let mode = head.mode;
        let attempt = head.want.waiting(self.turns_in_a_row >= TURNS_BEFORE_STAYING_OFF);
        if matches!(attempt, Attempt::Queue { stay_off: true, .. } | Attempt::Poll) {
            self.turns_in_a_row = 0;
        }
        // Others have the key in between.
        self.carried = None;
        self.phase = Phase::Waiting {
            flight,
            mode,
            polls: attempt == Attempt::Poll,
            sent: false,
        };
        actions.push(Action::Acquire {
            key,
            mode,
            attempt,
            flight,
        });
    }

    /// Asks the engine whether a shared hold may be shared further.
    pub(super) fn probe(&mut self, key: Key, flight: u64, actions: &mut Vec<Action<W>>) {
        self.phase = Phase::Probing { flight };
        actions.push(Action::Acquire {
            key,
            mode: Mode::Shared,
            attempt: Attempt::Probe,
            flight,
        });
    }

    /// Hands the turn to the head of the queue, and a shared one to all shared waiters behind it. Returns how many.
    pub(super) fn serve(&mut self, key: Key, actions: &mut Vec<Action<W>>) -> u32 {
        let turn = self.turn.as_mut().expect("a turn to hand over");
        let mut served = 0;
        while self.waiters.front().is_some_and(|head| head.mode == turn.mode) {
            let Some(waiter) = self.waiters.pop_front() else { break };
            turn.holders += 1;
            served += 1;
            actions.push(Action::Give {
                to: waiter.to,
                key,
                grant: turn.grant.clone(),
                turn: turn.id,
            });
            if turn.mode == Mode::Exclusive {
                break;
            }
        }
        served
    }

    /// As [`Entry::serve`], where this is a hand-over.
    pub(super) fn hand_over(&mut self, key: Key, actions: &mut Vec<Action<W>>) -> u64 {
        let served = self.serve(key, actions);
        if let Some(turn) = &mut self.turn {
            turn.hand_overs = turn.hand_overs.saturating_add(served);
        }
        u64::from(served)
    }

    /// Whether the waiter at the head could share the turn that stands.
    pub(super) fn head_could_join(&self) -> bool {
        self.turn
            .as_ref()
            .is_some_and(|turn| turn.mode == Mode::Shared && turn.grant.session().is_trusted())
            && self.head_mode() == Some(Mode::Shared)
    }

    pub(super) fn head_mode(&self) -> Option<Mode> {
        self.waiters.front().map(|head| head.mode)
    }

    /// Ends a turn whose session was lost.
    pub(super) fn lose_turn(&mut self) {
        self.turn = None;
        self.turns_in_a_row = 0;
        self.carried = None;
    }

    /// Denies all those who try, now that the key is held or others have a better claim to it.
    pub(super) fn deny_tries(&mut self, counters: &mut Counters, actions: &mut Vec<Action<W>>) {
        if !self.waiters.is_empty() {
            let denied = self.drain_tries();
            counters.denied += denied.len() as u64;
            actions.extend(denied.into_iter().map(|to| Action::Deny { to }));
        }
    }

    /// Gives the grant back to the engine. Those who wait are asked for when that is settled.
    pub(super) fn end_turn(&mut self, key: Key, actions: &mut Vec<Action<W>>) {
        if let Some(Turn { id, grant, mode, .. }) = self.turn.take() {
            self.phase = Phase::Settling { turn: id };
            let settle = !grant.ordered();
            actions.push(Action::Release {
                key,
                mode,
                grant,
                turn: id,
                settle,
            });
        }
    }

    /// Has the engine stop waiting, as soon as it has begun to.
    pub(super) fn abandon(&mut self, key: Key, actions: &mut Vec<Action<W>>) {
        if let Phase::Waiting { flight, mode, sent, .. } = self.phase {
            self.phase = Phase::Abandoning { flight, mode };
            if sent {
                actions.push(Action::Abandon { key, flight });
            }
        }
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

    /// Takes all those out of the queue of whom `which` says so.
    pub(super) fn drain(&mut self, which: impl Fn(&Waiter<W>) -> bool) -> Vec<W> {
        if !self.waiters.iter().any(&which) {
            return Vec::new();
        }
        let (out, stay): (VecDeque<_>, VecDeque<_>) = self.waiters.drain(..).partition(which);
        self.waiters = stay;
        out.into_iter().map(|waiter| waiter.to).collect()
    }

    /// Takes all those who try out of the queue.
    pub(super) fn drain_tries(&mut self) -> Vec<W> {
        self.drain(|waiter| waiter.want.is_try())
    }
}
