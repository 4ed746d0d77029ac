//! The waiter sessions of a process: opened on demand, up to a number, and closed when nobody waits.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex},
};

use latchwork_core::{Moment, engine::ReleaseRequest};

use crate::{
    connect::ConnectError,
    roster::Roster,
    shared::{PAUSE_AFTER_FAILURE, Shared},
    sync::lock,
    wait::Wait,
    waiter::Waiter,
};

/// What a waiter session is told.
#[derive(Debug)]
pub(crate) enum Message {
    Wait(Wait),
    Release(ReleaseRequest),
    Close,
}

/// The way to the waiter sessions.
#[derive(Debug)]
pub(crate) struct WaiterPool {
    limit: usize,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    waiters: Roster<Message>,
    /// Which waiter holds the lock of which session.
    holding: HashMap<u64, u64>,
    /// Whether one is being opened.
    opening: bool,
    paused_until: Moment,
}

impl WaiterPool {
    pub(crate) fn new(limit: usize) -> Self {
        Self {
            limit,
            state: Mutex::default(),
        }
    }

    /// Gives a wait to a free waiter session. Returns it if there is none; one that is opened then takes it from where
    /// it polls meanwhile, since connecting may take longer than its limit.
    pub(crate) fn assign(&self, shared: &Arc<Shared>, wait: Wait) -> Option<Wait> {
        let mut state = lock(&self.state);
        let Err(Message::Wait(wait)) = state.waiters.tell_idle(Message::Wait(wait)) else {
            return None;
        };
        if state.opening
            || state.waiters.len() >= self.limit
            || shared.clock.now() < state.paused_until
            || !shared.is_up()
        {
            return Some(wait);
        }
        state.opening = true;
        let (number, receiver) = state.waiters.add();
        drop(state);
        shared.spawn(Waiter::new(Arc::clone(shared), number, receiver).run());
        Some(wait)
    }

    /// Passes a release on to the waiter session that holds the lock. Returns it if that session has ended.
    pub(crate) fn release(&self, request: ReleaseRequest) -> Option<ReleaseRequest> {
        let state = lock(&self.state);
        let Some(waiter) = state.holding.get(&request.grant.session().id()) else {
            return Some(request);
        };
        match state.waiters.tell(*waiter, Message::Release(request)) {
            Err(Message::Release(request)) => Some(request),
            _ => None,
        }
    }

    pub(crate) fn close(&self) {
        lock(&self.state).waiters.tell_all(|| Message::Close);
    }

    /// Notes which session a waiter holds a lock on.
    pub(crate) fn holds(&self, waiter: u64, session: u64) {
        lock(&self.state).holding.insert(session, waiter);
    }

    /// Forgets it again.
    pub(crate) fn let_go(&self, session: u64) {
        lock(&self.state).holding.remove(&session);
    }

    /// Offers a waiter session to whoever waits next.
    pub(crate) fn offer(&self, waiter: u64) {
        lock(&self.state).waiters.offer(waiter);
    }

    /// Takes the offer back. Returns false if a wait is on its way already.
    pub(crate) fn take_back(&self, waiter: u64) -> bool {
        lock(&self.state).waiters.take_back(waiter)
    }

    /// Notes that the session that was being opened is open, or could not be opened.
    pub(crate) fn opened(&self) {
        lock(&self.state).opening = false;
    }

    /// Forgets a waiter session that has ended.
    pub(crate) fn ended(&self, waiter: u64) {
        let mut state = lock(&self.state);
        state.waiters.remove(waiter);
        state.holding.retain(|_, holder| *holder != waiter);
    }

    /// Notes that no waiter session can be opened for the time being: all else waits by polling.
    pub(crate) fn could_not_open(&self, shared: &Shared, error: &ConnectError) {
        tracing::warn!(
            target: "latchwork::postgres",
            error = error as &dyn std::error::Error,
            "cannot open a session to wait on: polling instead",
        );
        lock(&self.state).paused_until = shared.clock.now().after(PAUSE_AFTER_FAILURE);
    }
}
