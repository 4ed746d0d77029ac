//! Lock servers that are of no use.

use std::{
    any::Any,
    sync::{Arc, Mutex},
};

use latchwork_core::{
    Clock, Key, Locks, LocksOptions,
    engine::{
        AcquireRequest, AnnounceRequest, Engine, EngineError, EngineErrorKind, EngineEvents, FencedRequest,
        IncumbentRequest, LedgerRequest, ReleaseRequest, SlotsRequest,
    },
};
use tokio::sync::oneshot;

/// Answers every request with the same error, or never.
#[derive(Debug)]
struct Dead {
    error: Option<EngineErrorKind>,
    /// A request that is dropped counts as answered.
    kept: Mutex<Vec<Box<dyn Any + Send>>>,
}

/// Locks whose server answers with an error.
pub(crate) fn failing(error: EngineErrorKind) -> Locks {
    dead(Some(error))
}

/// Locks whose server never answers.
pub(crate) fn silent() -> Locks {
    dead(None)
}

fn dead(error: Option<EngineErrorKind>) -> Locks {
    let kept = Mutex::default();
    Locks::new(Arc::new(Dead { error, kept }), LocksOptions::default())
}

impl Dead {
    fn keep(&self, request: impl Any + Send) {
        self.kept.lock().unwrap().push(Box::new(request));
    }
}

impl Engine for Dead {
    fn attach(&self, _: EngineEvents) {}

    fn acquire(&self, request: AcquireRequest) {
        match self.error {
            Some(error) => request.reply.send(Err(EngineError::new(error))),
            None => self.keep(request),
        }
    }

    fn abandon(&self, _: Key, _: u64) {}

    fn release(&self, _: ReleaseRequest) {}

    fn take_slots(&self, request: SlotsRequest) {
        match self.error {
            Some(error) => {
                let _ = request.reply.candidates();
                request.reply.send(Err(EngineError::new(error)));
            }
            None => self.keep(request),
        }
    }

    fn acquire_fenced(&self, request: FencedRequest) {
        match self.error {
            Some(error) => request.reply.send(Err(EngineError::new(error))),
            None => self.keep(request),
        }
    }

    fn incumbent(&self, _: IncumbentRequest) {}

    fn ledger(&self, _: LedgerRequest) {}

    fn announce(&self, _: AnnounceRequest) {}

    fn close(&self, done: oneshot::Sender<()>) {
        let _ = done.send(());
    }

    fn outage(&self) -> Option<EngineError> {
        None
    }

    fn clock(&self) -> Clock {
        Clock::system()
    }
}
