//! The state machine of one pool: pure, like that of the gate.

use std::collections::VecDeque;

use super::slot::{Asked, Flight, Slot, Turn, Waiter};
use crate::{
    clock::Moment,
    engine::{EngineError, Grant},
    gate::{Counters, HandOverBound, Released},
    session::{HoldState, SessionHealth},
};

/// Something for the shell to do once the pool's mutex is free.
#[derive(Debug)]
pub(super) enum Action<W> {
    /// Ask the engine for slots, now or after one poll interval.
    Ask { flight: u64, later: bool },
    /// Give a slot back to the engine, and report when it has the request; with `settle`, only when it has answered.
    Release { slot: u32, grant: Grant, settle: bool },
    /// Hand a slot to one who waits; if he has gone, release it again.
    Give { to: W, slot: u32, grant: Grant, turn: u64 },
    /// Tell one who tried that all slots are taken.
    Deny { to: W },
    /// Tell one who waits that the engine failed.
    Fail { to: W, error: EngineError },
    /// Nothing: this action was carried out.
    Done,
}

/// The slots of one pool, and those who wait for them in this process.
#[derive(Debug)]
pub(super) struct Table<W> {
    pub(super) slots: Vec<Slot>,
    pub(super) waiters: VecDeque<Waiter<W>>,
    flights: Vec<Flight>,
    bound: HandOverBound,
    next: u64,
    pub(super) counters: Counters,
}

impl<W> Table<W> {
    pub(super) fn new(limit: u32, bound: HandOverBound) -> Self {
        Self {
            slots: (0..limit).map(|_| Slot::NEWLY_FREE).collect(),
            waiters: VecDeque::new(),
            flights: Vec::new(),
            bound,
            next: 0,
            counters: Counters::default(),
        }
    }

    /// Notes that a slot is held, by nobody who will release it.
    pub(super) fn hold(&mut self, slot: u32, grant: Grant) {
        if let Some(slot) = self.slots.get_mut(slot as usize)
            && !grant.session().is_lost()
        {
            *slot = Slot::Held(Turn {
                id: 0,
                grant,
                since: Moment::default(),
                hand_overs: 0,
            });
        }
    }

    pub(super) fn limit(&self) -> u32 {
        u32::try_from(self.slots.len()).unwrap_or(u32::MAX)
    }

    pub(super) fn permits(&self) -> usize {
        self.slots.iter().filter(|slot| matches!(slot, Slot::Held(_))).count()
    }

    /// Whether something is on its way back to the engine.
    pub(super) fn is_settling(&self) -> bool {
        self.slots.iter().any(|slot| matches!(slot, Slot::Settling { .. }))
    }

    /// Lets one in who wants a slot. Returns a ticket if he has to wait, or `None` if all slots are taken and he tries.
    pub(super) fn enter(&mut self, tries: bool, to: impl FnOnce() -> W, actions: &mut Vec<Action<W>>) -> Option<u64> {
        if tries && self.open_from().is_none() {
            self.counters.denied += 1;
            return None;
        }
        let ticket = self.number();
        self.waiters.push_back(Waiter {
            ticket,
            tries,
            to: to(),
        });
        self.ask(actions);
        Some(ticket)
    }

    pub(super) fn leave(&mut self, ticket: u64) {
        if let Ok(at) = self.waiters.binary_search_by_key(&ticket, |waiter| waiter.ticket) {
            self.waiters.remove(at);
            self.counters.abandoned += 1;
        }
    }

    /// Lists what the engine is to ask for now, and how many of it; the list is turned by `rotation`.
    pub(super) fn candidates(&mut self, flight: u64, rotation: usize) -> (Vec<u32>, usize) {
        let before = self.number();
        let under_way = self.under_way();
        let Some(own) = self.flights.iter_mut().find(|own| own.id == flight) else {
            return (Vec::new(), 0);
        };
        if own.later {
            for slot in &mut self.slots {
                if matches!(slot, Slot::Resting { since } if *since < flight) {
                    *slot = Slot::NEWLY_FREE;
                }
            }
        }
        let free = (0..)
            .zip(&self.slots)
            .filter(|(_, slot)| matches!(slot, Slot::Free { .. }));
        let mut slots: Vec<u32> = free.map(|(number, _)| number).collect();
        let want = self.waiters.len().saturating_sub(under_way).min(slots.len());
        if want == 0 {
            slots.clear();
        } else {
            let turned = rotation % slots.len();
            slots.rotate_left(turned);
        }
        for number in &slots {
            let slot = &mut self.slots[*number as usize];
            if let Slot::Free { tried } = *slot {
                *slot = Slot::Asked { flight, tried };
            }
        }
        own.asked = Some(Asked {
            before,
            slots: slots.clone(),
            want,
        });
        (slots, want)
    }

    /// Takes the engine's answer: which of the candidates were granted.
    pub(super) fn answered(
        &mut self,
        flight: u64,
        answer: Result<Vec<(usize, Grant)>, EngineError>,
        now: Moment,
        actions: &mut Vec<Action<W>>,
    ) {
        let Some(at) = self.flights.iter().position(|own| own.id == flight) else {
            return;
        };
        let asked = self.flights.swap_remove(at).asked.unwrap_or_default();
        let in_vain = answer.as_ref().map_or(0, |granted| asked.tried(granted));
        for (candidate, number) in asked.slots.iter().enumerate() {
            let slot = &mut self.slots[*number as usize];
            if let Slot::Asked { flight: own, tried } = *slot
                && own == flight
            {
                let tried = if candidate < in_vain { asked.before } else { tried };
                *slot = Slot::Free { tried };
            }
        }
        let granted = match answer {
            Ok(granted) => granted,
            Err(error) => return self.failed(&error, actions),
        };
        let mut lost = false;
        for (candidate, grant) in granted {
            // The loss was told before the grant came, so nobody would tell those who were handed it.
            if grant.session().is_lost() {
                lost = true;
            } else if let Some(slot) = asked.slots.get(candidate) {
                self.granted(*slot, grant, flight, now, actions);
            }
        }
        if lost {
            return self.failed(&EngineError::connection_lost(), actions);
        }
        self.deny_tries(actions);
        self.ask(actions);
    }

    /// The grant that a turn rests on, if it still stands.
    pub(super) fn grant(&self, slot: u32, turn: u64) -> Option<Grant> {
        match self.slots.get(slot as usize) {
            Some(Slot::Held(held)) if held.id == turn => Some(held.grant.clone()),
            _ => None,
        }
    }

    /// Takes a slot back. Says whether the turn still stood.
    pub(super) fn release(&mut self, slot: u32, turn: u64, now: Moment, actions: &mut Vec<Action<W>>) -> Released {
        let held = match &mut self.slots[slot as usize] {
            Slot::Held(held) if held.id == turn => held,
            _ => return Released::Gone,
        };
        self.counters.released += 1;
        let trusted = held.grant.session().state() == HoldState::Held;
        let within = held.is_within(self.bound, now);
        if trusted
            && within
            && let Some(waiter) = self.waiters.pop_front()
        {
            held.hand_overs += 1;
            self.counters.handed_over += 1;
            actions.push(Action::Give {
                to: waiter.to,
                slot,
                grant: held.grant.clone(),
                turn,
            });
            return Released::Kept;
        }
        let grant = held.grant.clone();
        let settle = !grant.ordered();
        let rest = !within && !self.waiters.is_empty();
        self.slots[slot as usize] = Slot::Settling { rest };
        actions.push(Action::Release { slot, grant, settle });
        Released::Sent
    }

    /// Takes the word that the engine may be asked again for a slot that was given back: it has been given an ordered
    /// release, or has answered another.
    pub(super) fn settled(&mut self, slot: u32, actions: &mut Vec<Action<W>>) {
        let since = self.number();
        if let Slot::Settling { rest } = self.slots[slot as usize] {
            self.slots[slot as usize] = if rest {
                Slot::Resting { since }
            } else {
                Slot::NEWLY_FREE
            };
            self.ask(actions);
        }
    }

    pub(super) fn session_lost(&mut self, session: &SessionHealth, actions: &mut Vec<Action<W>>) {
        for slot in &mut self.slots {
            if matches!(slot, Slot::Held(turn) if turn.grant.session().id() == session.id()) {
                *slot = Slot::NEWLY_FREE;
                self.counters.lost += 1;
            }
        }
        self.ask(actions);
    }

    /// Answers all those who wait for one attempt that the server does not answer.
    pub(super) fn server_silent(&mut self, error: &EngineError, actions: &mut Vec<Action<W>>) {
        self.fail(|waiter| waiter.tries, error, actions);
    }

    pub(super) fn close(&mut self, error: &EngineError, actions: &mut Vec<Action<W>>) {
        self.fail(|_| true, error, actions);
    }

    fn granted(&mut self, slot: u32, grant: Grant, turn: u64, now: Moment, actions: &mut Vec<Action<W>>) {
        self.counters.granted += 1;
        if let Some(waiter) = self.waiters.pop_front() {
            self.slots[slot as usize] = Slot::Held(Turn {
                id: turn,
                grant: grant.clone(),
                since: now,
                hand_overs: 0,
            });
            actions.push(Action::Give {
                to: waiter.to,
                slot,
                grant,
                turn,
            });
        } else {
            let settle = !grant.ordered();
            self.slots[slot as usize] = Slot::Settling { rest: false };
            actions.push(Action::Release { slot, grant, settle });
        }
    }

    fn failed(&mut self, error: &EngineError, actions: &mut Vec<Action<W>>) {
        let outage = error.is_outage();
        self.fail(|waiter| waiter.tries || !outage, error, actions);
        // There is nobody to leave a slot to. And with a request for that alone, an engine that is closed would be
        // asked again and again.
        for slot in &mut self.slots {
            if matches!(slot, Slot::Resting { .. }) {
                *slot = Slot::NEWLY_FREE;
            }
        }
        self.ask_later(actions);
    }

    fn fail(&mut self, which: impl Fn(&Waiter<W>) -> bool, error: &EngineError, actions: &mut Vec<Action<W>>) {
        let told = self.drain(which);
        self.counters.failed += told.len() as u64;
        actions.extend(told.into_iter().map(|to| Action::Fail {
            to,
            error: error.clone(),
        }));
    }

    /// Answers those who tried, and had their chance at every slot.
    fn deny_tries(&mut self, actions: &mut Vec<Action<W>>) {
        let open_from = self.open_from().unwrap_or(u64::MAX);
        let denied = self.drain(|waiter| waiter.tries && waiter.ticket < open_from);
        self.counters.denied += denied.len() as u64;
        actions.extend(denied.into_iter().map(|to| Action::Deny { to }));
    }

    /// The first ticket that has yet to have its chance at some slot.
    fn open_from(&self) -> Option<u64> {
        self.slots.iter().filter_map(Slot::open_from).min()
    }

    fn drain(&mut self, which: impl Fn(&Waiter<W>) -> bool) -> Vec<W> {
        if !self.waiters.iter().any(&which) {
            return Vec::new();
        }
        let (out, stay): (VecDeque<_>, VecDeque<_>) = self.waiters.drain(..).partition(which);
        self.waiters = stay;
        out.into_iter().map(|waiter| waiter.to).collect()
    }

    /// Makes sure that somebody asks for those who wait: now for those who have not had a chance yet, later for the
    /// others.
    fn ask(&mut self, actions: &mut Vec<Action<W>>) {
        if let Some(last) = self.waiters.back().map(|last| last.ticket) {
            let is_new = |slot: &Slot| matches!(slot, Slot::Free { tried } if *tried <= last);
            let is_next = |flight: &Flight| !flight.later && flight.asked.is_none();
            if self.waiters.len() > self.under_way()
                && !self.flights.iter().any(is_next)
                && self.slots.iter().any(is_new)
            {
                self.send(false, actions);
            }
        }
        self.ask_later(actions);
    }

    fn ask_later(&mut self, actions: &mut Vec<Action<W>>) {
        let wanted = self.waiters.iter().any(|waiter| !waiter.tries)
            // Or those who try would be kept off for good.
            || self.slots.iter().any(|slot| matches!(slot, Slot::Resting { .. }));
        if wanted && !self.flights.iter().any(|flight| flight.later) {
            self.send(true, actions);
        }
    }

    fn send(&mut self, later: bool, actions: &mut Vec<Action<W>>) {
        let id = self.number();
        self.flights.push(Flight { id, later, asked: None });
        actions.push(Action::Ask { flight: id, later });
    }

    /// How many slots the engine was asked for and has not answered.
    fn under_way(&self) -> usize {
        self.flights
            .iter()
            .filter_map(|flight| flight.asked.as_ref())
            .map(|asked| asked.want)
            .sum()
    }

    fn number(&mut self) -> u64 {
        self.next += 1;
        self.next
    }
}
