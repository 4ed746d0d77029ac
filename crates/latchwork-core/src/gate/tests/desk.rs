//! One key of a gate, with the test in the place of the engine: what happens goes in as a sentence, and what the gate
//! does comes out as a list.

use std::{collections::HashMap, sync::Arc, time::Duration};

use crate::{
    clock::{Clock, ClockHand, Moment},
    engine::{Attempt, EngineError, EngineErrorKind, Grant},
    gate::{Action, Entered, HandOverBound, Released, Table, Want},
    key::Key,
    mode::Mode,
    session::SessionHealth,
};

pub(super) const KEY: Key = Key::bigint(7);

/// One attempt of somebody who does not wait.
pub(super) const ONCE: Attempt = Attempt::Once { patient: false };
/// The first attempt of somebody who waits.
pub(super) const FIRST: Attempt = Attempt::Once { patient: true };
/// A place in the server's queue.
pub(super) const QUEUE: Attempt = Attempt::Queue {
    until: Moment::NEVER,
    stay_off: false,
};
/// A place in the server's queue, after others had their chance.
pub(super) const STAY_OFF: Attempt = Attempt::Queue {
    until: Moment::NEVER,
    stay_off: true,
};

/// Wants the key for as long as it takes.
pub(super) const WAIT: Want = Want::Queue { until: Moment::NEVER };

/// What the gate did. People have numbers.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Did {
    Ask(Mode, Attempt),
    Abandon,
    Release(Mode),
    Has(u32),
    Denied(u32),
    Failed(u32, EngineErrorKind),
}

enum Report {
    Sent(u64),
    Settled(u64),
}

pub(super) struct Desk {
    pub(super) table: Table<u32>,
    pub(super) session: Arc<SessionHealth>,
    clock: Clock,
    hand: ClockHand,
    ordered: bool,
    /// The last flight that the engine was asked for, and the last probe.
    pub(super) flight: u64,
    pub(super) probe: u64,
    tickets: HashMap<u32, u64>,
    turns: HashMap<u32, u64>,
    settling: u64,
    /// What the shell has to tell the gate when it has done what it was told.
    unreported: Option<Report>,
    /// Whether other threads are faster than the shell.
    pub(super) is_slow: bool,
    pub(super) released: Option<Released>,
}

impl Desk {
    pub(super) fn new() -> Self {
        Self::bounded(HandOverBound::default())
    }

    pub(super) fn bounded(bound: HandOverBound) -> Self {
        let (clock, hand) = Clock::manual();
        Self {
            table: Table::new(bound, clock.clone()),
            session: session(1, &clock),
            clock,
            hand,
            ordered: true,
            flight: 0,
            probe: 0,
            tickets: HashMap::new(),
            turns: HashMap::new(),
            settling: 0,
            unreported: None,
            is_slow: false,
            released: None,
        }
    }

    /// A desk whose engine grants on sessions that later requests do not go through.
    pub(super) fn unordered() -> Self {
        Self {
            ordered: false,
            ..Self::new()
        }
    }

    /// A desk at which 1 holds the key.
    pub(super) fn held(mode: Mode) -> Self {
        let mut desk = Self::new();
        desk.enter(1, mode, WAIT);
        assert_eq!(desk.grant(), [Did::Has(1)]);
        desk
    }

    pub(super) fn enter(&mut self, who: u32, mode: Mode, want: Want) -> Vec<Did> {
        let mut actions = Vec::new();
        let entered = self.table.enter(KEY, mode, want, || who, &mut actions);
        let mut did = Vec::new();
        match entered {
            Entered::Joined { turn, .. } => {
                self.turns.insert(who, turn);
                did.push(Did::Has(who));
            }
            Entered::Denied => did.push(Did::Denied(who)),
            Entered::Failed(error) => did.push(Did::Failed(who, error.kind())),
            Entered::Queued { ticket } => {
                self.tickets.insert(who, ticket);
            }
        }
        did.extend(self.read(actions));
        did
    }

    pub(super) fn leave(&mut self, who: u32) -> Vec<Did> {
        let ticket = self.tickets[&who];
        self.with(|table, actions| table.leave(KEY, ticket, actions))
    }

    pub(super) fn nudge(&mut self, who: u32) -> Vec<Did> {
        let ticket = self.tickets[&who];
        self.with(|table, actions| table.nudge(KEY, ticket, actions))
    }

    pub(super) fn release(&mut self, who: u32) -> Vec<Did> {
        let turn = self.turns[&who];
        let mut released = None;
        let did = self.with(|table, actions| released = Some(table.release(KEY, turn, actions)));
        self.released = released;
        did
    }

    /// The engine's answer to what it was last asked for.
    pub(super) fn answer(&mut self, answer: Result<Option<Grant>, EngineError>) -> Vec<Did> {
        let flight = self.flight;
        self.answer_flight(flight, answer)
    }

    pub(super) fn answer_flight(&mut self, flight: u64, answer: Result<Option<Grant>, EngineError>) -> Vec<Did> {
        self.with(|table, actions| table.answered(KEY, flight, answer, actions))
    }

    pub(super) fn grant(&mut self) -> Vec<Did> {
        let grant = self.a_grant();
        self.answer(Ok(Some(grant)))
    }

    pub(super) fn busy(&mut self) -> Vec<Did> {
        self.answer(Ok(None))
    }

    pub(super) fn fail(&mut self, kind: EngineErrorKind) -> Vec<Did> {
        self.answer(Err(EngineError::new(kind)))
    }

    pub(super) fn nobody_queues(&mut self) -> Vec<Did> {
        let (probe, grant) = (self.probe, self.a_grant());
        self.answer_flight(probe, Ok(Some(grant)))
    }

    pub(super) fn somebody_queues(&mut self) -> Vec<Did> {
        self.answer_flight(self.probe, Ok(None))
    }

    pub(super) fn settle(&mut self) -> Vec<Did> {
        let turn = self.settling;
        self.with(|table, actions| table.settled(KEY, turn, actions))
    }

    /// The session ends, the gate is told, and another session begins.
    pub(super) fn lose_session(&mut self) -> Vec<Did> {
        let lost = self.lose_session_untold();
        self.with(|table, actions| table.session_lost(&lost, actions))
    }

    /// The session ends, and the gate has not been told yet.
    pub(super) fn lose_session_untold(&mut self) -> Arc<SessionHealth> {
        self.session.lose();
        let next = session(self.session.id() + 1, &self.clock);
        std::mem::replace(&mut self.session, next)
    }

    pub(super) fn pass(&self, time: Duration) {
        self.hand.advance(time);
    }

    pub(super) fn now(&self) -> Moment {
        self.clock.now()
    }

    pub(super) fn a_grant(&self) -> Grant {
        let session = Arc::clone(&self.session);
        if self.ordered {
            Grant::new(session)
        } else {
            Grant::unordered(session)
        }
    }

    pub(super) fn with(&mut self, change: impl FnOnce(&mut Table<u32>, &mut Vec<Action<u32>>)) -> Vec<Did> {
        let mut actions = Vec::new();
        change(&mut self.table, &mut actions);
        self.read(actions)
    }

    /// Does what the shell does, and tells the gate so, unless another thread is faster.
    fn read(&mut self, mut actions: Vec<Action<u32>>) -> Vec<Did> {
        let mut did = Vec::new();
        let mut next = 0;
        while next < actions.len() {
            let action = std::mem::replace(&mut actions[next], Action::Done);
            next += 1;
            did.push(self.read_one(action));
            if !self.is_slow {
                self.report(&mut actions);
            }
        }
        did
    }

    fn report(&mut self, actions: &mut Vec<Action<u32>>) {
        match self.unreported.take() {
            Some(Report::Sent(flight)) => self.table.sent(KEY, flight, actions),
            Some(Report::Settled(turn)) => self.table.settled(KEY, turn, actions),
            None => {}
        }
    }

    /// The shell gets round to what it had yet to do.
    pub(super) fn catch_up(&mut self) -> Vec<Did> {
        self.is_slow = false;
        let mut actions = Vec::new();
        self.report(&mut actions);
        self.read(actions)
    }

    fn read_one(&mut self, action: Action<u32>) -> Did {
        match action {
            Action::Acquire {
                mode, attempt, flight, ..
            } => {
                if attempt == Attempt::Probe {
                    self.probe = flight;
                } else {
                    self.flight = flight;
                }
                if matches!(attempt, Attempt::Queue { .. } | Attempt::Poll) {
                    self.unreported = Some(Report::Sent(flight));
                }
                Did::Ask(mode, attempt)
            }
            Action::Abandon { flight, .. } => {
                assert_eq!(flight, self.flight, "only what was asked for can be abandoned");
                Did::Abandon
            }
            Action::Release { mode, turn, settle, .. } => {
                assert_eq!(
                    settle, !self.ordered,
                    "a release is settled if the grant was not ordered"
                );
                self.settling = turn;
                self.unreported = (!settle).then_some(Report::Settled(turn));
                Did::Release(mode)
            }
            Action::Give { to, turn, .. } => {
                self.turns.insert(to, turn);
                Did::Has(to)
            }
            Action::Deny { to } => Did::Denied(to),
            Action::Fail { to, error } => Did::Failed(to, error.kind()),
            Action::Done => unreachable!("the table does not say what was done"),
        }
    }
}

fn session(id: u64, clock: &Clock) -> Arc<SessionHealth> {
    Arc::new(SessionHealth::new(id, clock.clone(), Moment::NEVER))
}
