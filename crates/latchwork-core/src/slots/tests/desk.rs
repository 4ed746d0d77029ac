//! One pool, with the test in the place of the engine.

use std::{collections::HashMap, sync::Arc, time::Duration};

use crate::{
    clock::{Clock, ClockHand, Moment},
    engine::{EngineError, EngineErrorKind, Grant},
    gate::{HandOverBound, Released},
    session::SessionHealth,
    slots::table::{Action, Table},
};

/// What the pool did. People have numbers.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Did {
    /// Asks the engine at once.
    Ask,
    /// Asks the engine after one poll interval.
    AskLater,
    Release(u32),
    Has(u32, u32),
    Denied(u32),
    Failed(u32, EngineErrorKind),
}

pub(super) struct Desk {
    pub(super) table: Table<u32>,
    pub(super) session: Arc<SessionHealth>,
    clock: Clock,
    hand: ClockHand,
    ordered: bool,
    /// The last flights of either kind.
    pub(super) now: u64,
    pub(super) later: u64,
    lists: HashMap<u64, Vec<u32>>,
    tickets: HashMap<u32, u64>,
    holds: HashMap<u32, (u32, u64)>,
    /// Whether other threads are faster than the shell.
    pub(super) is_slow: bool,
    pub(super) released: Option<Released>,
}

impl Desk {
    pub(super) fn new(limit: u32) -> Self {
        Self::bounded(limit, HandOverBound::default())
    }

    pub(super) fn bounded(limit: u32, bound: HandOverBound) -> Self {
        let (clock, hand) = Clock::manual();
        Self {
            table: Table::new(limit, bound),
            session: Arc::new(SessionHealth::new(1, clock.clone(), Moment::NEVER)),
            clock,
            hand,
            ordered: true,
            now: 0,
            later: 0,
            lists: HashMap::new(),
            tickets: HashMap::new(),
            holds: HashMap::new(),
            is_slow: false,
            released: None,
        }
    }

    pub(super) fn unordered(limit: u32) -> Self {
        Self {
            ordered: false,
            ..Self::new(limit)
        }
    }

    /// A desk at which 1 to `limit` hold a slot each, from slot 0 on, and nothing is on its way.
    pub(super) fn full(limit: u32) -> Self {
        Self::new(limit).filled()
    }

    pub(super) fn filled(mut self) -> Self {
        for slot in 0..self.table.limit() {
            assert_eq!(self.tries(slot + 1), [Did::Ask]);
            assert_eq!(self.list(self.now).1, 1);
            assert_eq!(self.grant(self.now, &[slot]), [Did::Has(slot + 1, slot)]);
        }
        self
    }

    pub(super) fn tries(&mut self, who: u32) -> Vec<Did> {
        self.enter(who, true)
    }

    pub(super) fn waits(&mut self, who: u32) -> Vec<Did> {
        self.enter(who, false)
    }

    fn enter(&mut self, who: u32, tries: bool) -> Vec<Did> {
        let mut actions = Vec::new();
        match self.table.enter(tries, || who, &mut actions) {
            Some(ticket) => drop(self.tickets.insert(who, ticket)),
            None => {
                assert!(actions.is_empty());
                return vec![Did::Denied(who)];
            }
        }
        self.read(actions)
    }

    pub(super) fn leave(&mut self, who: u32) {
        self.table.leave(self.tickets[&who]);
    }

    /// The engine asks what to ask for.
    pub(super) fn list(&mut self, flight: u64) -> (Vec<u32>, usize) {
        let (slots, want) = self.table.candidates(flight, 0);
        self.lists.insert(flight, slots.clone());
        (slots, want)
    }

    /// The engine has got these slots of those on the list, and no others.
    pub(super) fn grant(&mut self, flight: u64, slots: &[u32]) -> Vec<Did> {
        let grant = self.a_grant();
        let list = &self.lists[&flight];
        let granted = slots
            .iter()
            .map(|slot| (list.iter().position(|listed| listed == slot).unwrap(), grant.clone()))
            .collect();
        self.answer(flight, Ok(granted))
    }

    pub(super) fn fail(&mut self, flight: u64, kind: EngineErrorKind) -> Vec<Did> {
        self.answer(flight, Err(EngineError::new(kind)))
    }

    pub(super) fn answer(&mut self, flight: u64, answer: Result<Vec<(usize, Grant)>, EngineError>) -> Vec<Did> {
        let now = self.clock.now();
        self.with(|table, actions| table.answered(flight, answer, now, actions))
    }

    pub(super) fn release(&mut self, who: u32) -> Vec<Did> {
        let ((slot, turn), now) = (self.holds[&who], self.clock.now());
        let mut released = None;
        let did = self.with(|table, actions| released = Some(table.release(slot, turn, now, actions)));
        self.released = released;
        did
    }

    pub(super) fn settle(&mut self, slot: u32) -> Vec<Did> {
        self.with(|table, actions| table.settled(slot, actions))
    }

    pub(super) fn lose_session(&mut self) -> Vec<Did> {
        let next = SessionHealth::new(self.session.id() + 1, self.clock.clone(), Moment::NEVER);
        let lost = std::mem::replace(&mut self.session, Arc::new(next));
        lost.lose();
        self.with(|table, actions| table.session_lost(&lost, actions))
    }

    pub(super) fn pass(&self, time: Duration) {
        self.hand.advance(time);
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

    /// Does what the shell does, and tells the pool so, unless another thread is faster.
    fn read(&mut self, mut actions: Vec<Action<u32>>) -> Vec<Did> {
        let mut did = Vec::new();
        let mut next = 0;
        while next < actions.len() {
            let action = std::mem::replace(&mut actions[next], Action::Done);
            next += 1;
            if let Action::Release {
                slot, settle: false, ..
            } = action
                && !self.is_slow
            {
                self.table.settled(slot, &mut actions);
            }
            did.push(self.read_one(action));
        }
        did
    }

    fn read_one(&mut self, action: Action<u32>) -> Did {
        match action {
            Action::Ask { flight, later: false } => {
                self.now = flight;
                Did::Ask
            }
            Action::Ask { flight, later: true } => {
                self.later = flight;
                Did::AskLater
            }
            Action::Release { slot, settle, .. } => {
                assert_eq!(
                    settle, !self.ordered,
                    "a release is settled if the grant was not ordered"
                );
                Did::Release(slot)
            }
            Action::Give { to, slot, turn, .. } => {
                self.holds.insert(to, (slot, turn));
                Did::Has(to, slot)
            }
            Action::Deny { to } => Did::Denied(to),
            Action::Fail { to, error } => Did::Failed(to, error.kind()),
            Action::Done => unreachable!("the table does not say what was done"),
        }
    }
}
