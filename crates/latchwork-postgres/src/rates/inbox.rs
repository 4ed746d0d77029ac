//! The way in for the session of the rate limits: requests collect while a statement is on the wire.

use std::{
    collections::VecDeque,
    fmt, mem,
    sync::Mutex,
    task::{Context, Poll, Waker},
};

use latchwork_core::{
    engine::{EngineError, EngineErrorKind},
    rate::ChargeRequest,
};
use tokio::sync::oneshot;

use super::batch::Batch;
use crate::sync::lock;

#[derive(Default)]
pub(super) struct Inbox(Mutex<State>);

#[derive(Default)]
struct State {
    requests: VecDeque<ChargeRequest>,
    /// Set while it is known that the server can't be asked: then nobody is kept waiting.
    outage: Option<EngineError>,
    closing: bool,
    /// Nobody takes anything out any more.
    ended: bool,
    done: Vec<oneshot::Sender<()>>,
    waker: Option<Waker>,
}

/// Why the owner of an inbox woke.
pub(super) enum Wake {
    Work(Batch),
    Close,
}

impl Inbox {
    /// Takes a request, or answers it where that is certain.
    pub(super) fn push(&self, request: ChargeRequest) {
        let mut state = lock(&self.0);
        let refusal = if state.ended {
            Some(EngineError::new(EngineErrorKind::Closed))
        } else {
            state.outage.clone()
        };
        if let Some(error) = refusal {
            drop(state);
            return request.reply.send(Err(error));
        }
        state.requests.push_back(request);
        let waker = state.waker.take();
        drop(state);
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    /// Begins an outage, which [`Inbox::outage_ended`] ends: answers all that is here, and what comes.
    pub(super) fn outage(&self, error: &EngineError) {
        let mut state = lock(&self.0);
        state.outage = Some(error.clone());
        let requests = mem::take(&mut state.requests);
        drop(state);
        fail(requests, error);
    }

    pub(super) fn outage_ended(&self) {
        lock(&self.0).outage = None;
    }

    pub(super) fn close(&self, done: Option<oneshot::Sender<()>>) {
        let mut state = lock(&self.0);
        state.closing = true;
        if !state.ended {
            state.done.extend(done);
        }
        let waker = state.waker.take();
        drop(state);
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    pub(super) fn is_closing(&self) -> bool {
        lock(&self.0).closing
    }

    /// Answers whatever is here, and comes from now on, that the engine is closed.
    pub(super) fn end(&self) {
        let mut state = lock(&self.0);
        state.ended = true;
        let (requests, done) = (mem::take(&mut state.requests), mem::take(&mut state.done));
        drop(state);
        fail(requests, &EngineError::new(EngineErrorKind::Closed));
        for done in done {
            // Whoever closed may have gone.
            let _ = done.send(());
        }
    }

    /// Resolves when the inbox is closed.
    pub(super) fn poll_closing(&self, context: &Context<'_>) -> Poll<()> {
        let mut state = lock(&self.0);
        if state.closing {
            return Poll::Ready(());
        }
        state.waker = Some(context.waker().clone());
        Poll::Pending
    }

    /// Whether nothing has collected.
    pub(super) fn is_empty(&self) -> bool {
        lock(&self.0).requests.is_empty()
    }

    /// Takes out what one statement can carry, if there is anything and the inbox is not closed.
    pub(super) fn take_work(&self) -> Option<Batch> {
        let mut state = lock(&self.0);
        if state.closing {
            return None;
        }
        Some(Batch::take(&mut state.requests)).filter(|batch| !batch.is_empty())
    }

    /// Waits for work, and takes it out like [`Inbox::take_work`].
    pub(super) fn poll_work(&self, context: &Context<'_>) -> Poll<Wake> {
        let mut state = lock(&self.0);
        if state.closing {
            return Poll::Ready(Wake::Close);
        }
        let batch = Batch::take(&mut state.requests);
        if batch.is_empty() {
            state.waker = Some(context.waker().clone());
            return Poll::Pending;
        }
        Poll::Ready(Wake::Work(batch))
    }
}

impl fmt::Debug for Inbox {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = lock(&self.0);
        f.debug_struct("Inbox")
            .field("requests", &state.requests.len())
            .field("outage", &state.outage)
            .field("closing", &state.closing)
            .finish_non_exhaustive()
    }
}

fn fail(requests: VecDeque<ChargeRequest>, error: &EngineError) {
    for request in requests {
        request.reply.send(Err(error.clone()));
    }
}
