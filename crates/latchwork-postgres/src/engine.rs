//! The engine: sends each request to the session that it belongs to.

use std::{fmt, sync::Arc};

use latchwork_core::{
    Clock, Key,
    engine::{
        AcquireRequest, AnnounceRequest, Attempt, Engine, EngineError, EngineErrorKind, EngineEvents, ReleaseRequest,
        SlotsRequest,
    },
};
use tokio::sync::oneshot;

use crate::{
    inbox::{Parked, is_patient},
    lock_session::LockSession,
    shared::Shared,
};

/// The engine of one process. Its sessions end when it is dropped.
pub(crate) struct PostgresEngine {
    pub(crate) shared: Arc<Shared>,
}

impl PostgresEngine {
    /// Runs `give` with the first session that has room for another lock; opens one if none has.
    fn with_roomy_session(&self, give: impl FnOnce(&LockSession)) {
        let limit = self.shared.options.locks_per_session;
        let mut give = Some(give);
        self.shared.with_sessions(|sessions| {
            if let Some(session) = sessions.iter().find(|session| session.load() < limit)
                && let Some(give) = give.take()
            {
                give(session);
            }
        });
        if let Some(give) = give {
            give(&self.shared.open_session(None));
        }
    }

    /// Runs `give` with the first session.
    fn with_primary(&self, give: impl FnOnce(&LockSession)) {
        self.shared.with_sessions(|sessions| {
            if let Some(primary) = sessions.first() {
                give(primary);
            }
        });
    }

    fn refusal(&self, patient: bool) -> Option<EngineError> {
        if self.shared.is_closing() {
            return Some(EngineError::new(EngineErrorKind::Closed));
        }
        if patient { None } else { self.shared.known_outage() }
    }
}

impl Engine for PostgresEngine {
    fn attach(&self, events: EngineEvents) {
        self.shared.attach(events);
    }

    fn acquire(&self, request: AcquireRequest) {
        if let Some(error) = self.refusal(is_patient(&request)) {
            return request.reply.send(Err(error));
        }
        match request.attempt {
            Attempt::Queue { stay_off: false, .. } => {
                let wait = self.shared.waits.begin(request);
                self.with_primary(|primary| primary.go_on_waiting(&self.shared, wait));
            }
            Attempt::Queue { .. } | Attempt::Poll => {
                let wait = self.shared.waits.begin(request);
                self.with_roomy_session(|session| session.inbox.park(self.shared.next_poll(), Parked::Wait(wait)));
            }
            Attempt::Probe => self.with_primary(|primary| primary.inbox.push(|work| work.probes.push(request))),
            _ => self.with_roomy_session(|session| session.ask_once(request)),
        }
    }

    fn abandon(&self, key: Key, flight: u64) {
        if self.shared.waits.abandon(key, flight) {
            self.shared.with_sessions(|sessions| sessions.iter().for_each(|session| session.inbox.end_abandoned()));
        }
    }

    fn release(&self, request: ReleaseRequest) {
        let session = request.grant.session().id();
        let mut request = Some(request);
        self.shared.with_sessions(|sessions| {
            if let Some(own) = sessions.iter().find(|own| own.is(session)) {
                own.inbox.push(|work| work.releases.extend(request.take()));
            }
        });
        if let Some(request) = request.and_then(|request| self.shared.waiters.release(request)) {
            // The session has ended, and the lock with it.
            request.reply.send(Ok(false));
        }
    }

    fn take_slots(&self, request: SlotsRequest) {
        if let Some(error) = self.refusal(request.later) {
            return request.reply.send(Err(error));
        }
        self.with_roomy_session(|session| {
            if request.later {
                session.inbox.park(self.shared.next_poll(), Parked::Slots(request));
            } else {
                session.inbox.push(|work| work.slots.push(request));
            }
        });
    }

    fn announce(&self, request: AnnounceRequest) {
        self.with_primary(|primary| primary.inbox.push(|work| work.announces.push(request)));
    }

    fn close(&self, done: oneshot::Sender<()>) {
        self.shared.begin_close();
        let shared = Arc::clone(&self.shared);
        self.shared.runtime.spawn(async move {
            shared.ended().await;
            // Whoever closed may have gone.
            let _ = done.send(());
        });
    }

    fn outage(&self) -> Option<EngineError> {
        self.shared.outage()
    }

    fn clock(&self) -> Clock {
        self.shared.clock.clone()
    }
}

impl Drop for PostgresEngine {
    fn drop(&mut self) {
        self.shared.begin_close();
    }
}

impl fmt::Debug for PostgresEngine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PostgresEngine")
            .field("identity", &format_args!("{}", self.shared.identity))
            .field("is_up", &self.shared.is_up())
            .field("held", &self.shared.room.taken())
            .finish_non_exhaustive()
    }
}
