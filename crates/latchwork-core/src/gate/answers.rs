//! What the gate makes of the engine's answers.

use super::{Action, Table, entry::Phase};
use crate::{
    engine::{EngineError, Grant},
    key::Key,
    mode::Mode,
};

impl<W> Table<W> {
    /// Takes the engine's answer.
    pub(crate) fn answered(
        &mut self,
        key: Key,
        flight: u64,
        answer: Result<Option<Grant>, EngineError>,
        actions: &mut Vec<Action<W>>,
    ) {
        let answer = match answer {
            // The loss was told before the grant came, so nobody would tell those who were handed it.
            Ok(Some(grant)) if grant.session().is_lost() => Err(EngineError::connection_lost()),
            answer => answer,
        };
        let Some(entry) = self.entries.get_mut(&key) else {
            return;
        };
        let phase = entry.phase;
        let Some((_, mode)) = phase.flight().filter(|(own, _)| *own == flight) else {
            // Only a probe can outlive the turn that it was for, and there is nothing to give back for it.
            return;
        };
        match (phase, answer) {
            (Phase::Probing { .. }, answer) => self.probed(key, answer, actions),
            (_, Ok(Some(grant))) => {
                self.counters.granted += 1;
                entry.begin_turn(flight, self.sessions.adopt(&grant), mode);
                if entry.head_mode() == Some(mode) {
                    // Those who are served by one grant have waited for it together: that is no hand-over yet for the
                    // bound.
                    self.counters.handed_over += u64::from(entry.serve(key, actions)).saturating_sub(1);
                    entry.deny_tries(&mut self.counters, actions);
                } else {
                    entry.end_turn(key, actions);
                }
            }
            (Phase::Trying { .. }, Ok(None)) => self.busy(key, mode, actions),
            (_, Ok(None)) => self.wait_ended(key, actions),
            (_, Err(error)) => self.failed(key, &error, actions),
        }
    }

    /// One attempt has found the key held by others.
    fn busy(&mut self, key: Key, mode: Mode, actions: &mut Vec<Action<W>>) {
        let entry = self.entries.get_mut(&key).expect("the flight's entry");
        entry.carried = None;
        // What is not free for a shared holder is not free for an exclusive one either. And whoever is behind one who
        // goes on to wait does not overtake him.
        let mut denied = entry.drain(|waiter| waiter.want.is_try() && (waiter.mode == mode || mode == Mode::Shared));
        if entry.head_mode() == Some(mode) {
            denied.extend(entry.drain_tries());
        }
        self.counters.denied += denied.len() as u64;
        actions.extend(denied.into_iter().map(|to| Action::Deny { to }));
        let entry = self.entries.get_mut(&key).expect("the flight's entry");
        match entry.head_mode() {
            Some(head) if head == mode || mode == Mode::Shared => {
                self.next += 1;
                entry.wait(key, self.next, actions);
            }
            _ => self.start_or_remove(key, actions),
        }
    }

    /// The engine has ended a wait without a grant: it was abandoned, or somebody's limit has run out.
    fn wait_ended(&mut self, key: Key, actions: &mut Vec<Action<W>>) {
        let entry = self.entries.get_mut(&key).expect("the flight's entry");
        // Asked for again, they would be answered again at once, until their timers get round to it.
        let over = entry.drain(|waiter| waiter.want.is_over(self.clock.now()));
        self.counters.abandoned += over.len() as u64;
        actions.extend(over.into_iter().map(|to| Action::Deny { to }));
        self.start_or_remove(key, actions);
    }

    fn failed(&mut self, key: Key, error: &EngineError, actions: &mut Vec<Action<W>>) {
        let entry = self.entries.get_mut(&key).expect("the flight's entry");
        entry.carried = None;
        let told = entry.drain(|waiter| waiter.want.is_try() || !error.is_outage());
        self.fail(told, error, actions);
        self.start_or_remove(key, actions);
    }

    /// The engine has said whether a shared hold may be shared further.
    fn probed(&mut self, key: Key, answer: Result<Option<Grant>, EngineError>, actions: &mut Vec<Action<W>>) {
        let entry = self.entries.get_mut(&key).expect("the flight's entry");
        entry.phase = Phase::Held;
        match answer {
            Ok(Some(_)) => {
                if let Some(turn) = &mut entry.turn {
                    turn.since = self.clock.now();
                    turn.hand_overs = 0;
                }
                // Whatever the bound is: it was the server who let them in.
                if entry.head_could_join() {
                    self.counters.handed_over += u64::from(entry.serve(key, actions));
                }
                entry.deny_tries(&mut self.counters, actions);
            }
            Ok(None) => entry.deny_tries(&mut self.counters, actions),
            Err(error) => {
                let told =
                    entry.drain(|waiter| waiter.want.is_try() || (waiter.mode == Mode::Shared && !error.is_outage()));
                self.fail(told, &error, actions);
            }
        }
    }
}
