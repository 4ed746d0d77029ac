//! Requests that wait for a key until they are abandoned, and the way to abandon them wherever they are.

use std::{
    collections::HashMap,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
    },
};

use latchwork_core::{
    Key, Moment,
    engine::{AcquireRequest, Attempt, EngineError, Grant},
};
use tokio::sync::Notify;

use crate::sync::lock;

/// All waits of an engine that have not been answered.
#[derive(Debug, Default)]
pub(crate) struct Waits(Mutex<HashMap<(Key, u64), Arc<Mark>>>);

#[derive(Debug, Default)]
struct Mark {
    abandoned: AtomicBool,
    notify: Notify,
}

impl Waits {
    /// Takes a request in.
    pub(crate) fn begin(self: &Arc<Self>, request: AcquireRequest) -> Wait {
        let mark = Arc::new(Mark::default());
        lock(&self.0).insert((request.key, request.flight()), Arc::clone(&mark));
        Wait {
            request: Some(request),
            mark,
            waits: Arc::clone(self),
        }
    }

    /// Marks a wait as abandoned. Whoever has it looks at the mark before he puts it anywhere. Returns whether it was
    /// not answered yet.
    pub(crate) fn abandon(&self, key: Key, flight: u64) -> bool {
        let mark = lock(&self.0).get(&(key, flight)).cloned();
        if let Some(mark) = &mark {
            mark.abandoned.store(true, Ordering::SeqCst);
            mark.notify.notify_one();
        }
        mark.is_some()
    }
}

/// A request that is answered when the key was granted, or when it is abandoned.
#[derive(Debug)]
pub(crate) struct Wait {
    request: Option<AcquireRequest>,
    mark: Arc<Mark>,
    waits: Arc<Waits>,
}

impl Wait {
    pub(crate) const fn request(&self) -> &AcquireRequest {
        self.request.as_ref().expect("only an answered wait has no request")
    }

    /// Until when somebody wants the key, as far as is known.
    pub(crate) const fn until(&self) -> Moment {
        match self.request().attempt {
            Attempt::Queue { until, .. } => until,
            _ => Moment::NEVER,
        }
    }

    /// Whether the wait may stand in the server's queue.
    pub(crate) const fn may_queue(&self) -> bool {
        matches!(self.request().attempt, Attempt::Queue { .. })
    }

    pub(crate) fn is_abandoned(&self) -> bool {
        self.mark.abandoned.load(Ordering::SeqCst)
    }

    /// Resolves when the wait is abandoned.
    pub(crate) async fn abandoned(&self) {
        while !self.is_abandoned() {
            self.mark.notify.notified().await;
        }
    }

    pub(crate) fn answer(mut self, answer: Result<Option<Grant>, EngineError>) {
        self.forget();
        if let Some(request) = self.request.take() {
            request.reply.send(answer);
        }
    }

    fn forget(&self) {
        if let Some(request) = &self.request {
            lock(&self.waits.0).remove(&(request.key, request.flight()));
        }
    }
}

impl Drop for Wait {
    fn drop(&mut self) {
        self.forget();
    }
}
