//! The state machine of one pool: pure, like that of the gate.

use std::collections::VecDeque;

use crate::{
    clock::Moment,
    engine::{EngineError, Grant},
    gate::{HandOverBound, Released},
    session::{HoldState, SessionHealth},
};

/// Something for the shell to do once the pool's mutex is free.
#[derive(Debug)]
pub(super) enum Action<W> {
    /// Ask the engine for slots, now or after one poll interval.
    Ask { flight: u64, later: bool },
    /// Give a slot back to the engine; with `settle`, report to the pool when that has happened.
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

#[derive(Debug)]
enum Slot {
    /// Not ours, as far as we know anybody's.
    Free,
    /// The engine was asked for it by this flight.
    Asked {
        flight: u64,
    },
    Held(Turn),
    /// The engine was told to release it, and has not answered yet.
    Settling,
    /// Left to others after a long turn, until a flight that began later than this one is asked.
    Resting {
        since: u64,
    },
}

#[derive(Debug)]
struct Turn {
    id: u64,
    grant: Grant,
    since: Moment,
    hand_overs: u32,
}

#[derive(Debug)]
struct Waiter<W> {
    ticket: u64,
    tries: bool,
    to: W,
}

/// A request to the engine.
#[derive(Debug)]
struct Flight {
    id: u64,
    later: bool,
    asked: Option<Asked>,
}

/// What was on the list when the engine asked for it.
#[derive(Debug)]
struct Asked {
    /// All who came before this ticket had their chance in this flight.
    before: u64,
    slots: Vec<u32>,
    want: usize,
}

/// The slots of one pool, and those who wait for them in this process.
#[derive(Debug)]
pub(super) struct Table<W> {
    slots: Vec<Slot>,
    waiters: VecDeque<Waiter<W>>,
    flights: Vec<Flight>,
    bound: HandOverBound,
    next: u64,
    /// All who came before this ticket have had a chance at every slot that seemed free.
    had_a_chance: u64,
}

impl<W> Table<W> {
    pub(super) fn new(limit: u32, bound: HandOverBound) -> Self {
        Self {
            slots: (0..limit).map(|_| Slot::Free).collect(),
            waiters: VecDeque::new(),
            flights: Vec::new(),
            bound,
            next: 0,
            had_a_chance: 0,
        }
    }

    pub(super) fn limit(&self) -> u32 {
        u32::try_from(self.slots.len()).unwrap_or(u32::MAX)
    }

    pub(super) fn permits(&self) -> usize {
        self.slots.iter().filter(|slot| matches!(slot, Slot::Held(_))).count()
    }

    /// Lets one in who wants a slot. Returns a ticket if he has to wait, or `None` if all slots are taken and he tries.
    pub(super) fn enter(&mut self, tries: bool, to: impl FnOnce() -> W, actions: &mut Vec<Action<W>>) -> Option<u64> {
        let open = self
            .slots
            .iter()
            .any(|slot| matches!(slot, Slot::Free | Slot::Asked { .. } | Slot::Settling));
        if tries && !open {
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
        }
    }

    /// Lists what the engine is to ask for now, and how many of it; the list is turned by `rotation`.
    pub(super) fn candidates(&mut self, flight: u64, rotation: usize) -> (Vec<u32>, usize) {
        let before = self.number();
        let under_way: usize = self
            .flights
            .iter()
            .filter_map(|flight| flight.asked.as_ref())
            .map(|a| a.want)
            .sum();
        let Some(own) = self.flights.iter_mut().find(|own| own.id == flight) else {
            return (Vec::new(), 0);
        };
        if own.later {
            for slot in &mut self.slots {
                if matches!(slot, Slot::Resting { since } if *since < flight) {
                    *slot = Slot::Free;
                }
            }
        }
        let mut slots: Vec<u32> = (0..)
            .zip(&self.slots)
            .filter(|(_, slot)| matches!(slot, Slot::Free))
            .map(|(number, _)| number)
            .collect();
        let want = self.waiters.len().saturating_sub(under_way).min(slots.len());
        if want == 0 {
            slots.clear();
        } else {
            let turned = rotation % slots.len();
            slots.rotate_left(turned);
        }
        for slot in &slots {
            self.slots[*slot as usize] = Slot::Asked { flight };
        }
        self.had_a_chance = before;
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
        let Flight { asked, .. } = self.flights.swap_remove(at);
        let asked = asked.unwrap_or(Asked {
            before: 0,
            slots: Vec::new(),
            want: 0,
        });
        for slot in &asked.slots {
            if matches!(&self.slots[*slot as usize], Slot::Asked { flight: own } if *own == flight) {
                self.slots[*slot as usize] = Slot::Free;
            }
        }
        match answer {
            Ok(granted) => {
                for (candidate, grant) in granted {
                    if let Some(slot) = asked.slots.get(candidate) {
                        self.granted(*slot, grant, flight, now, actions);
                    }
                }
                self.deny_tries(asked.before, actions);
                self.ask(actions);
            }
            Err(error) => self.failed(&error, actions),
        }
    }

    /// Takes a slot back. Says whether the turn still stood.
    pub(super) fn release(&mut self, slot: u32, turn: u64, now: Moment, actions: &mut Vec<Action<W>>) -> Released {
        let since = self.number();
        let Slot::Held(held) = &mut self.slots[slot as usize] else {
            return Released::Gone;
        };
        if held.id != turn {
            return Released::Gone;
        }
        let trusted = held.grant.session().state() == HoldState::Held;
        let within = held.hand_overs < self.bound.count && now.since(held.since) < self.bound.time;
        if trusted
            && within
            && let Some(waiter) = self.waiters.pop_front()
        {
            held.hand_overs += 1;
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
        self.slots[slot as usize] = match (settle, within || self.waiters.is_empty()) {
            (true, _) => Slot::Settling,
            (false, true) => Slot::Free,
            (false, false) => Slot::Resting { since },
        };
        actions.push(Action::Release { slot, grant, settle });
        self.ask(actions);
        Released::Sent
    }

    pub(super) fn settled(&mut self, slot: u32, actions: &mut Vec<Action<W>>) {
        if matches!(self.slots[slot as usize], Slot::Settling) {
            self.slots[slot as usize] = Slot::Free;
            self.ask(actions);
        }
    }

    pub(super) fn session_lost(&mut self, session: &SessionHealth, actions: &mut Vec<Action<W>>) {
        for slot in &mut self.slots {
            if matches!(slot, Slot::Held(turn) if turn.grant.session().id() == session.id()) {
                *slot = Slot::Free;
            }
        }
        self.ask(actions);
    }

    /// Answers all those who wait for one attempt that the server does not answer.
    pub(super) fn server_silent(&mut self, error: &EngineError, actions: &mut Vec<Action<W>>) {
        for to in self.drain(|waiter| waiter.tries) {
            actions.push(Action::Fail {
                to,
                error: error.clone(),
            });
        }
    }

    pub(super) fn close(&mut self, error: &EngineError, actions: &mut Vec<Action<W>>) {
        for to in self.drain(|_| true) {
            actions.push(Action::Fail {
                to,
                error: error.clone(),
            });
        }
    }

    fn granted(&mut self, slot: u32, grant: Grant, turn: u64, now: Moment, actions: &mut Vec<Action<W>>) {
        if let Some(waiter) = self.waiters.pop_front() {
            let held = Turn {
                id: turn,
                grant: grant.clone(),
                since: now,
                hand_overs: 0,
            };
            self.slots[slot as usize] = Slot::Held(held);
            actions.push(Action::Give {
                to: waiter.to,
                slot,
                grant,
                turn,
            });
        } else {
            let settle = !grant.ordered();
            self.slots[slot as usize] = if settle { Slot::Settling } else { Slot::Free };
            actions.push(Action::Release { slot, grant, settle });
        }
    }

    fn failed(&mut self, error: &EngineError, actions: &mut Vec<Action<W>>) {
        let outage = error.is_outage();
        for to in self.drain(|waiter| waiter.tries || !outage) {
            actions.push(Action::Fail {
                to,
                error: error.clone(),
            });
        }
        if !self.waiters.is_empty() {
            self.ask_later(actions);
        }
    }

    /// Answers those who tried, and had their chance.
    fn deny_tries(&mut self, before: u64, actions: &mut Vec<Action<W>>) {
        let open = self
            .slots
            .iter()
            .any(|slot| matches!(slot, Slot::Free | Slot::Asked { .. } | Slot::Settling));
        for to in self.drain(|waiter| waiter.tries && (waiter.ticket < before || !open)) {
            actions.push(Action::Deny { to });
        }
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
        let Some(last) = self.waiters.back() else { return };
        if last.ticket > self.had_a_chance {
            let some_free = self.slots.iter().any(|slot| matches!(slot, Slot::Free));
            let pending = self
                .flights
                .iter()
                .any(|flight| !flight.later && flight.asked.is_none());
            if some_free && !pending {
                self.send(false, actions);
            }
        }
        self.ask_later(actions);
    }

    fn ask_later(&mut self, actions: &mut Vec<Action<W>>) {
        let wait = self.waiters.iter().any(|waiter| !waiter.tries);
        if wait && !self.flights.iter().any(|flight| flight.later) {
            self.send(true, actions);
        }
    }

    fn send(&mut self, later: bool, actions: &mut Vec<Action<W>>) {
        let id = self.number();
        self.flights.push(Flight { id, later, asked: None });
        actions.push(Action::Ask { flight: id, later });
    }

    fn number(&mut self) -> u64 {
        self.next += 1;
        self.next
    }
}
