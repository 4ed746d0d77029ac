//! A lock server that keeps PostgreSQL's rules for advisory locks.

use std::collections::{BTreeMap, VecDeque};

use crate::{key::Key, mode::Mode};

/// Who holds what, and who queues. A queued request is known by its `T`.
#[derive(Debug)]
pub(crate) struct Server<T> {
    keys: BTreeMap<Key, State<T>>,
}

#[derive(Debug)]
struct State<T> {
    holders: Vec<(u64, Mode)>,
    queue: VecDeque<(u64, Mode, T)>,
}

impl<T> State<T> {
    /// A session never stands in its own way; whoever queues stands in the way of all who do not get on with him.
    fn admits(&self, session: u64, mode: Mode) -> bool {
        self.grants(session, mode) && self.queue.iter().all(|(_, queued, _)| queued.is_compatible_with(mode))
    }

    fn grants(&self, session: u64, mode: Mode) -> bool {
        self.holders
            .iter()
            .all(|(holder, held)| *holder == session || held.is_compatible_with(mode))
    }

    fn advance(&mut self, granted: &mut Vec<T>) {
        while let Some((session, mode, request)) = self.queue.pop_front() {
            if !self.grants(session, mode) {
                self.queue.push_front((session, mode, request));
                break;
            }
            self.holders.push((session, mode));
            granted.push(request);
        }
    }
}

impl<T: PartialEq> Server<T> {
    pub(crate) const fn new() -> Self {
        Self { keys: BTreeMap::new() }
    }

    pub(crate) fn try_acquire(&mut self, session: u64, key: Key, mode: Mode) -> bool {
        let state = self.state(key);
        let admits = state.admits(session, mode);
        if admits {
            state.holders.push((session, mode));
        }
        self.tidy(key);
        admits
    }

    /// Acquires the key, or queues for it. Says whether it was granted.
    pub(crate) fn acquire(&mut self, session: u64, key: Key, mode: Mode, request: T) -> bool {
        let granted = self.try_acquire(session, key, mode);
        if !granted {
            self.state(key).queue.push_back((session, mode, request));
        }
        granted
    }

    /// Whether a holder from elsewhere would be admitted beside this session.
    pub(crate) fn would_admit(&self, session: u64, key: Key, mode: Mode) -> bool {
        self.keys.get(&key).is_none_or(|state| state.admits(session, mode))
    }

    /// Takes a request out of the queue. Says whether it was there.
    pub(crate) fn withdraw(&mut self, key: Key, request: &T, granted: &mut Vec<T>) -> bool {
        let state = self.state(key);
        let before = state.queue.len();
        state.queue.retain(|(_, _, queued)| queued != request);
        let was_there = state.queue.len() < before;
        state.advance(granted);
        self.tidy(key);
        was_there
    }

    pub(crate) fn release(&mut self, session: u64, key: Key, mode: Mode, granted: &mut Vec<T>) -> bool {
        let state = self.state(key);
        let at = state.holders.iter().position(|holder| *holder == (session, mode));
        if let Some(at) = at {
            state.holders.swap_remove(at);
            state.advance(granted);
        }
        self.tidy(key);
        at.is_some()
    }

    /// Ends a session. Returns its requests that queued.
    pub(crate) fn end_session(&mut self, session: u64, granted: &mut Vec<T>) -> Vec<T> {
        let mut dropped = Vec::new();
        for state in self.keys.values_mut() {
            state.holders.retain(|(holder, _)| *holder != session);
            for (own, mode, request) in std::mem::take(&mut state.queue) {
                if own == session {
                    dropped.push(request);
                } else {
                    state.queue.push_back((own, mode, request));
                }
            }
            state.advance(granted);
        }
        self.keys
            .retain(|_, state| !state.holders.is_empty() || !state.queue.is_empty());
        dropped
    }

    pub(crate) fn holders(&self, key: Key) -> &[(u64, Mode)] {
        self.keys.get(&key).map_or(&[], |state| &state.holders)
    }

    pub(crate) fn is_held(&self, session: u64, key: Key, mode: Mode) -> bool {
        self.holders(key).contains(&(session, mode))
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.keys.is_empty()
    }

    fn state(&mut self, key: Key) -> &mut State<T> {
        self.keys.entry(key).or_insert_with(|| State {
            holders: Vec::new(),
            queue: VecDeque::new(),
        })
    }

    fn tidy(&mut self, key: Key) {
        if self
            .keys
            .get(&key)
            .is_some_and(|state| state.holders.is_empty() && state.queue.is_empty())
        {
            self.keys.remove(&key);
        }
    }
}
