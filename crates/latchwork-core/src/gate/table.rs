//! The transitions of the gate.

use std::{
    collections::{
        HashMap,
        hash_map::{Entry::Occupied, OccupiedEntry},
    },
    sync::Arc,
};

use foldhash::fast::RandomState;

use super::{
    Action, Counters, Entered, HandOverBound, Want,
    entry::{Admission, Entry, Phase, Waiter},
};
use crate::{
    clock::Clock,
    engine::{EngineError, EngineErrorKind, Grant},
    key::Key,
    mode::Mode,
    session::{HoldState, SessionHealth},
};

/// The gate's entries.
#[derive(Debug)]
pub(crate) struct Table<W> {
    /// Looked at several times for each lock: the standard library's hash costs more than all else that is done here.
    pub(super) entries: HashMap<Key, Entry<W>, RandomState>,
    pub(super) sessions: Sessions,
    bound: HandOverBound,
    pub(super) clock: Clock,
    pub(super) next: u64,
    pub(crate) counters: Counters,
}

impl<W> Table<W> {
    pub(crate) fn new(bound: HandOverBound, clock: Clock) -> Self {
        Self {
            entries: HashMap::default(),
            sessions: Sessions::default(),
            bound,
            clock,
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

    /// Whether a key is held here.
    pub(crate) fn is_held(&self, key: Key) -> bool {
        self.entries.get(&key).is_some_and(|entry| entry.turn.is_some())
    }

    /// Whether something is on its way back to the engine.
    pub(crate) fn is_settling(&self) -> bool {
        self.entries
            .values()
            .any(|entry| matches!(entry.phase, Phase::Settling { .. }))
    }

    /// Lets one in who wants a key. `to` is only made if he has to wait.
    pub(crate) fn enter(
        &mut self,
        key: Key,
        mode: Mode,
        want: Want,
        to: impl FnOnce() -> W,
        actions: &mut Vec<Action<W>>,
    ) -> Entered {
        self.next += 1;
        let ticket = self.next;
        let entry = self.entries.entry(key).or_insert_with(Entry::new);
        let admission = entry.admit(mode, want, self.bound, &self.clock);
        match admission {
            Admission::Join => {
                let turn = entry.turn.as_mut().expect("one joins a turn");
                turn.holders += 1;
                turn.hand_overs = turn.hand_overs.saturating_add(1);
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
            Admission::Start | Admission::StartAnew | Admission::Probe | Admission::Wait => {}
        }
        entry.waiters.push_back(Waiter {
            ticket,
            mode,
            want,
            to: to(),
        });
        match admission {
            Admission::Start => entry.start(key, ticket, actions),
            Admission::StartAnew => {
                self.counters.lost += 1;
                entry.lose_turn();
                entry.start(key, ticket, actions);
            }
            Admission::Probe => entry.probe(key, ticket, actions),
            _ => {}
        }
        Entered::Queued { ticket }
    }

    /// Lets one go who no longer waits. Does nothing if he was served meanwhile.
    pub(crate) fn leave(&mut self, key: Key, ticket: u64, actions: &mut Vec<Action<W>>) {
        let Some(entry) = self.entries.get_mut(&key) else {
            return;
        };
        if entry.remove(ticket).is_none() {
            return;
        }
        self.counters.abandoned += 1;
        match entry.phase {
            Phase::Waiting { mode, polls, .. } if !entry.serves_head(mode, polls) => entry.abandon(key, actions),
            // An exclusive waiter may have stood before shared ones that can join.
            Phase::Held => self.join_waiters(key, actions),
            _ => {}
        }
    }

    /// Lets one who waits for a shared hold look again whether he can join the one that stands in his way: neither the
    /// end of a doubt nor the leaving of those who queued elsewhere is told.
    pub(crate) fn nudge(&mut self, key: Key, ticket: u64, actions: &mut Vec<Action<W>>) {
        let heads = |entry: &Entry<W>| entry.waiters.front().is_some_and(|head| head.ticket == ticket);
        if self.entries.get(&key).is_some_and(heads) {
            self.join_waiters(key, actions);
        }
    }

    /// Takes a key back from a holder. Says whether the holder's turn still stood.
    pub(crate) fn release(&mut self, key: Key, turn_id: u64, actions: &mut Vec<Action<W>>) -> Released {
        let Some(entry) = self.entries.get_mut(&key) else {
            return Released::Gone;
        };
        let Some(turn) = entry.turn.as_mut().filter(|turn| turn.id == turn_id) else {
            return Released::Gone;
        };
        self.counters.released += 1;
        turn.holders -= 1;
        if turn.holders > 0 {
            return Released::Kept;
        }
        if turn.grant.session().is_lost() {
            // The gate is about to be told of it, and will not find this turn any more.
            self.counters.lost += 1;
        }
        if !entry.waiters.is_empty() && turn.grant.session().state() == HoldState::Held {
            let within = turn.is_within(self.bound, &self.clock);
            let (since, hand_overs, mode) = (turn.since, turn.hand_overs, turn.mode);
            match entry.head_mode() {
                Some(head) if within && head == mode => {
                    self.counters.handed_over += entry.hand_over(key, actions);
                    return Released::Kept;
                }
                // For the bound, a change of mode is a hand-over.
                Some(_) if within => entry.carried = Some(Box::new((since, hand_overs.saturating_add(1)))),
                Some(_) => entry.turns_in_a_row = entry.turns_in_a_row.saturating_add(1),
                None => {}
            }
        }
        entry.end_turn(key, actions);
        Released::Sent
    }

    /// Takes the shell's word that the engine has been given a request to wait: from now on it can be abandoned. Threads
    /// overtake each other between a change of the gate and what follows from it.
    pub(crate) fn sent(&mut self, key: Key, flight: u64, actions: &mut Vec<Action<W>>) {
        match self.entries.get_mut(&key).map(|entry| &mut entry.phase) {
            Some(Phase::Waiting { flight: own, sent, .. }) if *own == flight => *sent = true,
            Some(Phase::Abandoning { flight: own, .. }) if *own == flight => {
                actions.push(Action::Abandon { key, flight });
            }
            _ => {}
        }
    }

    /// Takes the word that the engine may be asked again for a key that was given back: it has been given an ordered
    /// release, or has answered another.
    pub(crate) fn settled(&mut self, key: Key, turn: u64, actions: &mut Vec<Action<W>>) {
        if let Occupied(entry) = self.entries.entry(key)
            && entry.get().phase == (Phase::Settling { turn })
        {
            Self::go_on(entry, &mut self.next, actions);
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
                entry.lose_turn();
            }
            self.start_or_remove(key, actions);
        }
    }

    /// Answers all those who wait for one attempt that the server does not answer.
    pub(crate) fn server_silent(&mut self, error: &EngineError, actions: &mut Vec<Action<W>>) {
        let told = self.entries.values_mut().flat_map(Entry::drain_tries).collect();
        self.fail(told, error, actions);
    }

    /// Answers everybody who waits, because the gate closes.
    pub(crate) fn close(&mut self, error: &EngineError, actions: &mut Vec<Action<W>>) {
        let told = self
            .entries
            .values_mut()
            .flat_map(|entry| entry.drain(|_| true))
            .collect();
        self.fail(told, error, actions);
        for (key, entry) in &mut self.entries {
            entry.abandon(*key, actions);
        }
    }

    pub(super) fn fail(&mut self, told: Vec<W>, error: &EngineError, actions: &mut Vec<Action<W>>) {
        self.counters.failed += told.len() as u64;
        actions.extend(told.into_iter().map(|to| Action::Fail {
            to,
            error: error.clone(),
        }));
    }

    /// Lets shared waiters at the head of the queue join a shared turn; after the bound the server is asked first.
    fn join_waiters(&mut self, key: Key, actions: &mut Vec<Action<W>>) {
        let Some(entry) = self.entries.get_mut(&key) else {
            return;
        };
        if entry.phase != Phase::Held || !entry.head_could_join() {
            return;
        }
        if entry
            .turn
            .as_ref()
            .is_some_and(|turn| turn.is_within(self.bound, &self.clock))
        {
            self.counters.handed_over += entry.hand_over(key, actions);
        } else {
            self.next += 1;
            entry.probe(key, self.next, actions);
        }
    }

    /// Asks the engine for whoever is at the head of the queue; with nobody there, the entry goes.
    pub(super) fn start_or_remove(&mut self, key: Key, actions: &mut Vec<Action<W>>) {
        if let Occupied(entry) = self.entries.entry(key) {
            Self::go_on(entry, &mut self.next, actions);
        }
    }

    fn go_on(mut entry: OccupiedEntry<'_, Key, Entry<W>>, next: &mut u64, actions: &mut Vec<Action<W>>) {
        if entry.get().waiters.is_empty() {
            entry.remove();
            return;
        }
        *next += 1;
        let key = *entry.key();
        entry.get_mut().start(key, *next, actions);
    }
}

/// The sessions that grants are on.
#[derive(Debug, Default)]
pub(super) struct Sessions(Vec<Arc<SessionHealth>>);

impl Sessions {
    /// The grant with a session that is counted here: cores that work for other tables need not share the count.
    pub(super) fn adopt(&mut self, grant: &Grant) -> Grant {
        let id = grant.session().id();
        let known = self.0.iter().find(|session| session.id() == id);
        let session = known.cloned().unwrap_or_else(|| {
            let session = Arc::new(SessionHealth::clone(grant.session()));
            self.0.retain(|session| !session.is_lost());
            self.0.push(Arc::clone(&session));
            session
        });
        grant.on(session)
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
