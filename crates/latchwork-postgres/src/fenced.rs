//! Fenced locks: each on a session of its own, and the sessions of a process for them.

mod session;

use std::{
    collections::HashMap,
    sync::{Arc, Mutex},
};

use latchwork_core::engine::FencedRequest;
use tokio::sync::mpsc;

use crate::{error::StatementError, shared::Shared, sync::lock};

use session::FencedSession;

/// What a session for fenced locks is told.
#[derive(Debug)]
enum Message {
    Request(FencedRequest),
    Close,
}

/// The way to the sessions for fenced locks: opened on demand, and kept for a while, since a grant needs a session of
/// some age.
#[derive(Debug)]
pub(crate) struct FencedPool {
    limit: usize,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// All that are open or being opened.
    sessions: HashMap<u64, mpsc::UnboundedSender<Message>>,
    /// Those that have nothing to do, the one that was busy last at the end.
    idle: Vec<u64>,
    next: u64,
}

impl FencedPool {
    pub(crate) fn new(limit: usize) -> Self {
        Self {
            limit,
            state: Mutex::default(),
        }
    }

    /// Gives a request to a free session, or to a new one.
    pub(crate) fn assign(&self, shared: &Arc<Shared>, request: FencedRequest) {
        let mut message = Message::Request(request);
        let mut state = lock(&self.state);
        while let Some(idle) = state.idle.pop() {
            let Some(session) = state.sessions.get(&idle) else {
                continue;
            };
            match session.send(message) {
                Ok(()) => return,
                Err(mpsc::error::SendError(unsent)) => message = unsent,
            }
        }
        let sessions = state.sessions.len();
        if sessions >= self.limit {
            drop(state);
            if let Message::Request(request) = message {
                let error = StatementError::TooManyFenced { sessions };
                request.reply.send(Err(error.into_engine()));
            }
            return;
        }
        state.next += 1;
        let number = state.next;
        let (sender, receiver) = mpsc::unbounded_channel();
        // Its receiver is here.
        let _ = sender.send(message);
        state.sessions.insert(number, sender);
        drop(state);
        shared.spawn(FencedSession::new(Arc::clone(shared), number, receiver).run());
    }

    pub(crate) fn close(&self) {
        for session in lock(&self.state).sessions.values() {
            // One that has ended needs no word.
            let _ = session.send(Message::Close);
        }
    }

    /// Offers a session to whoever comes next.
    fn offer(&self, session: u64) {
        lock(&self.state).idle.push(session);
    }

    /// Takes the offer back. Returns false if a request is on its way already.
    fn take_back(&self, session: u64) -> bool {
        let mut state = lock(&self.state);
        let at = state.idle.iter().position(|idle| *idle == session);
        if let Some(at) = at {
            state.idle.remove(at);
        }
        at.is_some()
    }

    /// Forgets a session that has ended.
    fn ended(&self, session: u64) {
        let mut state = lock(&self.state);
        state.sessions.remove(&session);
        state.idle.retain(|idle| *idle != session);
    }
}
