//! The transitions of the gate.

use std::collections::{HashMap, hash_map};

use super::{
    Action, Entered, HandOverBound, Want,
    entry::{Entry, Phase, Turn, Waiter},
};
use crate::{
    clock::Moment,
    engine::{Attempt, EngineError, EngineErrorKind, Grant},
    key::Key,
    mode::Mode,
    session::{HoldState, SessionHealth},
};

/// What the gate has counted since the start.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Counters {
    pub(crate) granted: u64,
    pub(crate) handed_over: u64,
    pub(crate) denied: u64,
    pub(crate) failed: u64,
    pub(crate) abandoned: u64,
    pub(crate) released: u64,
    pub(crate) lost: u64,
}

impl Counters {
    pub(crate) const fn add(&mut self, other: &Self) {
        self.granted += other.granted;
        self.handed_over += other.handed_over;
        self.denied += other.denied;
        self.failed += other.failed;
        self.abandoned += other.abandoned;
        self.released += other.released;
        self.lost += other.lost;
    }
}

/// The gate's entries.
#[derive(Debug)]
pub(crate) struct Table<W> {
    entries: HashMap<Key, Entry<W>>,
    bound: HandOverBound,
    next: u64,
    pub(crate) counters: Counters,
}

impl<W> Table<W> {
    pub(crate) fn new(bound: HandOverBound) -> Self {
        Self {
            entries: HashMap::new(),
            bound,
            next: 0,
            counters: Counters::default(),
        }
    }

    /// How many keys are held or wanted here.
    pub(crate) fn len(&self) -> usize {
        self.entries.len()
    }

    /// How many holders there are here.
    pub(crate) fn holders(&self) -> usize {
        self.entries
            .values()
            .filter_map(|entry| entry.turn.as_ref())
            .map(|turn| turn.holders as usize)
            .sum()
    }

    /// Lets one in who wants a key. `to` is only made if he has to wait.
    pub(crate) fn enter(
        &mut self,
        key: Key,
        mode: Mode,
        want: Want,
        now: Moment,
        to: impl FnOnce() -> W,
        actions: &mut Vec<Action<W>>,
    ) -> Entered {
        self.next += 1;
        let ticket = self.next;
        let entry = match self.entries.entry(key) {
            hash_map::Entry::Occupied(occupied) => occupied.into_mut(),
            hash_map::Entry::Vacant(vacant) => {
                let entry = vacant.insert(Entry::new(Phase::Trying { flight: ticket, mode }));
                entry.waiters.push_back(Waiter {
                    ticket,
                    mode,
                    want,
                    to: to(),
                });
                let attempt = Attempt::Once {
                    patient: !want.is_try(),
                };
                actions.push(Action::Acquire {
                    key,
                    mode,
                    attempt,
                    flight: ticket,
                });
                return Entered::Queued { ticket };
            }
        };
        match Self::admit(entry, mode, want, self.bound, now) {
            Admission::Join => {
                let turn = entry.turn.as_mut().expect("one joins a turn");
                turn.holders += 1;
                turn.hand_overs += 1;
                self.counters.handed_over += 1;
                return Entered::Joined {
                    grant: turn.grant.clone(),
                    turn: turn.id,
                };
            }
            Admission::Deny => {
                self.counters.denied += 1;
                return Entered::Denied;
            }
            Admission::Fail => {
                self.counters.failed += 1;
                return Entered::Failed(EngineError::new(EngineErrorKind::Unavailable));
            }
            Admission::Probe => {
                entry.phase = Phase::Probing { flight: ticket };
                actions.push(Action::Acquire {
                    key,
                    mode,
                    attempt: Attempt::Probe,
                    flight: ticket,
                });
            }
            Admission::Wait => {}
        }
        entry.waiters.push_back(Waiter {
            ticket,
            mode,
            want,
            to: to(),
        });
        if entry.turn.as_ref().is_some_and(|turn| turn.grant.session().is_lost()) {
            self.next += 1;
            self.counters.lost += 1;
            entry.turn = None;
            start(key, entry, self.next, actions);
        }
        Entered::Queued { ticket }
    }

    /// Judges one who comes to a key that is held or wanted already.
    fn admit(entry: &Entry<W>, mode: Mode, want: Want, bound: HandOverBound, now: Moment) -> Admission {
        let Some(turn) = &entry.turn else {
            // A key that the engine waits for is not free; all other phases will soon know better.
            return match entry.phase {
                Phase::Waiting { .. } if want.is_try() => Admission::Deny,
                _ => Admission::Wait,
            };
        };
        let state = turn.grant.session().state();
        if state == HoldState::Lost {
            return Admission::Wait;
        }
        if state != HoldState::Held {
            return if want.is_try() {
                Admission::Fail
            } else {
                Admission::Wait
            };
        }
        let could_join = mode.is_compatible_with(turn.mode);
        match entry.phase {
            Phase::Probing { .. } if could_join => Admission::Wait,
            _ if could_join && entry.waiters.is_empty() => {
                if turn.is_within(bound, now) {
                    Admission::Join
                } else {
                    Admission::Probe
                }
            }
            _ if want.is_try() => Admission::Deny,
            _ => Admission::Wait,
        }
    }

    /// Lets one go who no longer waits. Does nothing if he was served meanwhile.
    pub(crate) fn leave(&mut self, key: Key, ticket: u64, now: Moment, actions: &mut Vec<Action<W>>) {
        let Some(entry) = self.entries.get_mut(&key) else {
            return;
        };
        if entry.remove(ticket).is_none() {
            return;
        }
        self.counters.abandoned += 1;
        match entry.phase {
            Phase::Waiting { flight, mode, polls } if !entry.serves_head(mode, polls) => {
                entry.phase = Phase::Abandoning { flight, mode };
                actions.push(Action::Abandon { key, flight });
            }
            // An exclusive waiter may have stood before shared ones that can join.
            Phase::Held => self.join_waiters(key, now, actions),
            _ => {}
        }
    }

    /// Takes the engine's answer.
    pub(crate) fn answered(
        &mut self,
        key: Key,
        flight: u64,
        answer: Result<Option<Grant>, EngineError>,
        now: Moment,
        actions: &mut Vec<Action<W>>,
    ) {
        let phase = self.entries.get(&key).map(|entry| entry.phase);
        match (phase, answer) {
            (Some(Phase::Probing { flight: own }), answer) if own == flight => self.probed(key, answer, now, actions),
            (
                Some(
                    Phase::Trying { flight: own, mode }
                    | Phase::Waiting { flight: own, mode, .. }
                    | Phase::Abandoning { flight: own, mode },
                ),
                Ok(Some(grant)),
            ) if own == flight => self.granted(key, mode, flight, grant, now, actions),
            (Some(Phase::Trying { flight: own, mode }), Ok(None)) if own == flight => self.busy(key, mode, actions),
            (Some(Phase::Waiting { flight: own, .. } | Phase::Abandoning { flight: own, .. }), Ok(None))
                if own == flight =>
            {
                self.start_or_remove(key, actions);
            }
            (
                Some(
                    Phase::Trying { flight: own, .. }
                    | Phase::Waiting { flight: own, .. }
                    | Phase::Abandoning { flight: own, .. },
                ),
                Err(error),
            ) if own == flight => self.failed(key, &error, actions),
            // Only a probe can outlive the turn that it was for, and there is nothing to give back for it.
            _ => {}
        }
    }

    /// Takes a key back from a holder. Says whether the holder's turn still stood.
    pub(crate) fn release(&mut self, key: Key, turn_id: u64, now: Moment, actions: &mut Vec<Action<W>>) -> Released {
        let Some(entry) = self.entries.get_mut(&key) else {
            return Released::Gone;
        };
        let Some(turn) = entry.turn.as_mut().filter(|turn| turn.id == turn_id) else {
            return Released::Gone;
        };
        self.counters.released += 1;
        let state = turn.grant.session().state();
        turn.holders -= 1;
        if turn.holders > 0 {
            return Released::Kept;
        }
        if state == HoldState::Held
            && turn.is_within(self.bound, now)
            && entry.waiters.front().is_some_and(|head| head.mode == turn.mode)
        {
            self.counters.handed_over += serve(key, entry, actions);
            return Released::Kept;
        }
        if state == HoldState::Held && !entry.waiters.is_empty() {
            if turn.is_within(self.bound, now) {
                // The next one wants the other mode: for the bound this goes on as the same turn.
                entry.carried = Some((turn.since, turn.hand_overs));
            } else {
                entry.turns_in_a_row = entry.turns_in_a_row.saturating_add(1);
            }
        }
        self.end_turn(key, actions);
        Released::Sent
    }

    /// Takes the engine's word that an unordered release has happened.
    pub(crate) fn settled(&mut self, key: Key, turn: u64, actions: &mut Vec<Action<W>>) {
        if self
            .entries
            .get(&key)
            .is_some_and(|entry| entry.phase == Phase::Settling { turn })
        {
            self.start_or_remove(key, actions);
        }
    }

    /// Lets go of everything that a lost session held; those who wait behind it ask again.
    pub(crate) fn session_lost(&mut self, session: &SessionHealth, actions: &mut Vec<Action<W>>) {
        let lost: Vec<Key> = self
            .entries
            .iter()
            .filter(|(_, entry)| {
                entry
                    .turn
                    .as_ref()
                    .is_some_and(|turn| turn.grant.session().id() == session.id())
            })
            .map(|(key, _)| *key)
            .collect();
        for key in lost {
            if let Some(entry) = self.entries.get_mut(&key) {
                self.counters.lost += 1;
                entry.turn = None;
                entry.turns_in_a_row = 0;
            }
            self.start_or_remove(key, actions);
        }
    }

    /// Answers all those who wait for one attempt that the server does not answer.
    pub(crate) fn server_silent(&mut self, error: &EngineError, actions: &mut Vec<Action<W>>) {
        for entry in self.entries.values_mut() {
            for to in entry.drain_tries(|_| true) {
                self.counters.failed += 1;
                actions.push(Action::Fail {
                    to,
                    error: error.clone(),
                });
            }
        }
    }

    /// Answers everybody who waits, because the gate closes.
    pub(crate) fn close(&mut self, error: &EngineError, actions: &mut Vec<Action<W>>) {
        for (key, entry) in &mut self.entries {
            for waiter in entry.waiters.drain(..) {
                actions.push(Action::Fail {
                    to: waiter.to,
                    error: error.clone(),
                });
            }
            if let Phase::Waiting { flight, mode, .. } = entry.phase {
                entry.phase = Phase::Abandoning { flight, mode };
                actions.push(Action::Abandon { key: *key, flight });
            }
        }
    }

    fn granted(&mut self, key: Key, mode: Mode, flight: u64, grant: Grant, now: Moment, actions: &mut Vec<Action<W>>) {
        let entry = self.entries.get_mut(&key).expect("the flight's entry");
        self.counters.granted += 1;
        let (since, hand_overs) = entry.carried.take().unwrap_or((now, 0));
        entry.turn = Some(Turn {
            id: flight,
            grant,
            mode,
            holders: 0,
            since,
            hand_overs,
        });
        entry.phase = Phase::Held;
        if entry.waiters.front().is_some_and(|head| head.mode == mode) {
            self.counters.handed_over += serve(key, entry, actions).saturating_sub(1);
            self.deny_tries(key, actions);
        } else {
            self.end_turn(key, actions);
        }
    }

    fn busy(&mut self, key: Key, mode: Mode, actions: &mut Vec<Action<W>>) {
        let entry = self.entries.get_mut(&key).expect("the flight's entry");
        entry.carried = None;
        // What is not free for a shared holder is not free for an exclusive one either.
        let mut denied = entry.drain_tries(|waiter| waiter.mode == mode || mode == Mode::Shared);
        if entry.waiters.front().is_some_and(|head| !head.want.is_try()) {
            denied.extend(entry.drain_tries(|_| true));
        }
        self.counters.denied += denied.len() as u64;
        actions.extend(denied.into_iter().map(|to| Action::Deny { to }));
        let Some((head_mode, attempt)) = entry.waiting_for_head() else {
            self.entries.remove(&key);
            return;
        };
        self.next += 1;
        if head_mode == mode || mode == Mode::Shared {
            wait(key, entry, self.next, head_mode, attempt, actions);
        } else {
            start(key, entry, self.next, actions);
        }
    }

    fn failed(&mut self, key: Key, error: &EngineError, actions: &mut Vec<Action<W>>) {
        let entry = self.entries.get_mut(&key).expect("the flight's entry");
        let told = if error.is_outage() {
            entry.drain_tries(|_| true)
        } else {
            entry.waiters.drain(..).map(|waiter| waiter.to).collect()
        };
        self.counters.failed += told.len() as u64;
        actions.extend(told.into_iter().map(|to| Action::Fail {
            to,
            error: error.clone(),
        }));
        self.start_or_remove(key, actions);
    }

    fn probed(
        &mut self,
        key: Key,
        answer: Result<Option<Grant>, EngineError>,
        now: Moment,
        actions: &mut Vec<Action<W>>,
    ) {
        let entry = self.entries.get_mut(&key).expect("the flight's entry");
        entry.phase = Phase::Held;
        match answer {
            Ok(Some(_)) => {
                if let Some(turn) = &mut entry.turn {
                    turn.since = now;
                    turn.hand_overs = 0;
                }
                self.join_waiters(key, now, actions);
                self.deny_tries(key, actions);
            }
            Ok(None) => self.deny_tries(key, actions),
            Err(error) => {
                let told = entry.drain_tries(|_| true);
                self.counters.failed += told.len() as u64;
                actions.extend(told.into_iter().map(|to| Action::Fail {
                    to,
                    error: error.clone(),
                }));
            }
        }
    }

    /// Answers those who tried while the question was open, now that the key is held by others.
    fn deny_tries(&mut self, key: Key, actions: &mut Vec<Action<W>>) {
        let Some(entry) = self.entries.get_mut(&key) else {
            return;
        };
        let denied = entry.drain_tries(|_| true);
        self.counters.denied += denied.len() as u64;
        actions.extend(denied.into_iter().map(|to| Action::Deny { to }));
    }

    /// Lets shared waiters at the head of the queue join a shared turn.
    fn join_waiters(&mut self, key: Key, now: Moment, actions: &mut Vec<Action<W>>) {
        let Some(entry) = self.entries.get_mut(&key) else {
            return;
        };
        let joinable = entry.turn.as_ref().is_some_and(|turn| {
            turn.mode == Mode::Shared
                && turn.holders > 0
                && turn.is_within(self.bound, now)
                && turn.grant.session().is_trusted()
        });
        if joinable && entry.waiters.front().is_some_and(|head| head.mode == Mode::Shared) {
            self.counters.handed_over += serve(key, entry, actions);
        }
    }

    /// Gives the grant back to the engine, and goes on with those who wait.
    fn end_turn(&mut self, key: Key, actions: &mut Vec<Action<W>>) {
        let Some(entry) = self.entries.get_mut(&key) else {
            return;
        };
        if let Some(turn) = entry.turn.take() {
            let Turn { id, grant, mode, .. } = turn;
            let settle = !grant.ordered();
            actions.push(Action::Release {
                key,
                mode,
                grant,
                turn: id,
                settle,
            });
            if settle {
                entry.phase = Phase::Settling { turn: id };
                return;
            }
        }
        self.start_or_remove(key, actions);
    }

    /// Asks the engine for whoever is at the head of the queue; with nobody there, the entry goes.
    fn start_or_remove(&mut self, key: Key, actions: &mut Vec<Action<W>>) {
        let Some(entry) = self.entries.get_mut(&key) else {
            return;
        };
        if entry.waiters.is_empty() {
            self.entries.remove(&key);
            return;
        }
        self.next += 1;
        start(key, entry, self.next, actions);
    }
}

/// What became of a holder's release.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Released {
    /// The key stays with this process: others hold it too, or the next one has it.
    Kept,
    /// The last action is to give it back to the engine.
    Sent,
    /// The turn had ended before: the lock was lost.
    Gone,
}

enum Admission {
    Join,
    Probe,
    Deny,
    Fail,
    Wait,
}

/// Asks the engine for the waiter at the head of the queue.
fn start<W>(key: Key, entry: &mut Entry<W>, flight: u64, actions: &mut Vec<Action<W>>) {
    let Some((mode, attempt)) = entry.waiting_for_head() else {
        return;
    };
    let patient = !matches!(attempt, Attempt::Once { .. });
    if patient && entry.turns_in_a_row > 0 {
        // After a turn that the bound has ended, one does not simply try again: that would always win.
        wait(key, entry, flight, mode, attempt, actions);
    } else {
        entry.phase = Phase::Trying { flight, mode };
        actions.push(Action::Acquire {
            key,
            mode,
            attempt: Attempt::Once { patient },
            flight,
        });
    }
}

/// Has the engine wait for the key.
fn wait<W>(key: Key, entry: &mut Entry<W>, flight: u64, mode: Mode, attempt: Attempt, actions: &mut Vec<Action<W>>) {
    if matches!(attempt, Attempt::Queue { stay_off: true, .. } | Attempt::Poll) {
        entry.turns_in_a_row = 0;
    }
    entry.phase = Phase::Waiting {
        flight,
        mode,
        polls: attempt == Attempt::Poll,
    };
    actions.push(Action::Acquire {
        key,
        mode,
        attempt,
        flight,
    });
}

/// Hands the turn to the head of the queue, and a shared one to all shared waiters behind it. Returns how many.
fn serve<W>(key: Key, entry: &mut Entry<W>, actions: &mut Vec<Action<W>>) -> u64 {
    let turn = entry.turn.as_mut().expect("a turn to hand over");
    let mut served = 0;
    while entry.waiters.front().is_some_and(|head| head.mode == turn.mode) {
        if turn.mode == Mode::Exclusive && served == 1 {
            break;
        }
        let Some(waiter) = entry.waiters.pop_front() else { break };
        turn.holders += 1;
        turn.hand_overs += 1;
        served += 1;
        actions.push(Action::Give {
            to: waiter.to,
            key,
            grant: turn.grant.clone(),
            turn: turn.id,
        });
    }
    served
}
