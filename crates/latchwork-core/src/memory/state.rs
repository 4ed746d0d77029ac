//! What the server in memory holds, and who queues for it. Like PostgreSQL's lock manager in what it grants: a request
//! waits behind those who queue before it, unless it is compatible with all of them.

use std::collections::{HashMap, VecDeque};

use crate::{engine::AcquireRequest, key::Key, mode::Mode};

/// A request that was answered under the state's mutex, to be told after it.
pub(super) type Granted = (u64, AcquireRequest);

#[derive(Debug, Default)]
pub(super) struct State {
    keys: HashMap<Key, KeyState>,
}

#[derive(Debug, Default)]
struct KeyState {
    holders: Vec<(u64, Mode)>,
    queue: VecDeque<Granted>,
}

impl KeyState {
    fn admits(&self, mode: Mode) -> bool {
        self.holders.iter().all(|(_, held)| held.is_compatible_with(mode))
            && self
                .queue
                .iter()
                .all(|(_, queued)| queued.mode.is_compatible_with(mode))
    }

    /// Grants to the head of the queue for as long as that is possible.
    fn advance(&mut self, granted: &mut Vec<Granted>) {
        while let Some((session, request)) = self.queue.pop_front() {
            if !self
                .holders
                .iter()
                .all(|(_, held)| held.is_compatible_with(request.mode))
            {
                self.queue.push_front((session, request));
                break;
            }
            self.holders.push((session, request.mode));
            granted.push((session, request));
        }
    }
}

impl State {
    pub(super) fn held(&self) -> usize {
        self.keys.values().map(|key| key.holders.len()).sum()
    }

    pub(super) fn queued(&self) -> usize {
        self.keys.values().map(|key| key.queue.len()).sum()
    }

    /// Whether a holder of this mode would be admitted beside those that are there.
    pub(super) fn admits(&self, key: Key, mode: Mode) -> bool {
        self.keys.get(&key).is_none_or(|state| state.admits(mode))
    }

    /// Grants a key if it is free.
    pub(super) fn try_grant(&mut self, session: u64, key: Key, mode: Mode) -> bool {
        let state = self.keys.entry(key).or_default();
        let admits = state.admits(mode);
        if admits {
            state.holders.push((session, mode));
        }
        admits
    }

    /// The session that holds a key exclusively.
    pub(super) fn holder(&self, key: Key) -> Option<u64> {
        let holders = &self.keys.get(&key)?.holders;
        holders
            .iter()
            .find_map(|(session, mode)| (*mode == Mode::Exclusive).then_some(*session))
    }

    /// Puts a request at the tail of the queue.
    pub(super) fn queue(&mut self, session: u64, request: AcquireRequest) {
        self.keys
            .entry(request.key)
            .or_default()
            .queue
            .push_back((session, request));
    }

    /// Takes a request out of the queue, and grants to those whom it had stood before.
    pub(super) fn abandon(
        &mut self,
        session: u64,
        key: Key,
        flight: u64,
        granted: &mut Vec<Granted>,
    ) -> Option<AcquireRequest> {
        let state = self.keys.get_mut(&key)?;
        let at = state
            .queue
            .iter()
            .position(|(own, request)| *own == session && request.flight() == flight)?;
        let (_, request) = state.queue.remove(at)?;
        state.advance(granted);
        self.tidy(key);
        Some(request)
    }

    /// Releases a hold. Returns whether it was there.
    pub(super) fn release(&mut self, session: u64, key: Key, mode: Mode, granted: &mut Vec<Granted>) -> bool {
        let Some(state) = self.keys.get_mut(&key) else {
            return false;
        };
        let Some(at) = state.holders.iter().position(|holder| *holder == (session, mode)) else {
            return false;
        };
        state.holders.swap_remove(at);
        state.advance(granted);
        self.tidy(key);
        true
    }

    /// Releases everything that sessions hold, and takes their requests out of the queues.
    pub(super) fn end_sessions(&mut self, sessions: &[u64], granted: &mut Vec<Granted>) -> Vec<AcquireRequest> {
        let mut dropped = Vec::new();
        for state in self.keys.values_mut() {
            state.holders.retain(|(own, _)| !sessions.contains(own));
            let (ended, others): (VecDeque<_>, VecDeque<_>) =
                state.queue.drain(..).partition(|(own, _)| sessions.contains(own));
            state.queue = others;
            dropped.extend(ended.into_iter().map(|(_, request)| request));
            state.advance(granted);
        }
        self.keys
            .retain(|_, state| !state.holders.is_empty() || !state.queue.is_empty());
        dropped
    }

    /// The second halves of held pairs that share the first half of `marker`, without its own.
    pub(super) fn other_markers(&self, marker: Key) -> Vec<i32> {
        let Some((first, own)) = marker.as_pair() else {
            return Vec::new();
        };
        let mut others: Vec<i32> = self
            .keys
            .iter()
            .filter(|(_, state)| !state.holders.is_empty())
            .filter_map(|(key, _)| key.as_pair())
            .filter(|(pool, limit)| *pool == first && *limit != own)
            .map(|(_, limit)| limit)
            .collect();
        others.sort_unstable();
        others
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
