//! Fenced locks: each on a session of its own, and the sessions of a process for them.

mod session;

use std::sync::{Arc, Mutex};

use latchwork_core::engine::FencedRequest;

use crate::{error::StatementError, roster::Roster, shared::Shared, sync::lock};

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
    sessions: Mutex<Roster<Message>>,
}

impl FencedPool {
    pub(crate) fn new(limit: usize) -> Self {
        Self {
            limit,
            sessions: Mutex::default(),
        }
    }

    /// Gives a request to a free session, or to a new one.
    pub(crate) fn assign(&self, shared: &Arc<Shared>, request: FencedRequest) {
        let mut sessions = lock(&self.sessions);
        let Err(message) = sessions.tell_idle(Message::Request(request)) else {
            return;
        };
        let open = sessions.len();
        if open >= self.limit {
            drop(sessions);
            if let Message::Request(request) = message {
                let error = StatementError::TooManyFenced { sessions: open };
                request.reply.send(Err(error.into_engine()));
            }
            return;
        }
        let (number, receiver) = sessions.add();
        // Its receiver is here.
        let _ = sessions.tell(number, message);
        drop(sessions);
        shared.spawn(FencedSession::new(Arc::clone(shared), number, receiver).run());
    }

    pub(crate) fn close(&self) {
        lock(&self.sessions).tell_all(|| Message::Close);
    }

    /// Offers a session to whoever comes next.
    fn offer(&self, session: u64) {
        lock(&self.sessions).offer(session);
    }

    /// Takes the offer back. Returns false if a request is on its way already.
    fn take_back(&self, session: u64) -> bool {
        lock(&self.sessions).take_back(session)
    }

    /// Forgets a session that has ended.
    fn ended(&self, session: u64) {
        lock(&self.sessions).remove(session);
    }
}
