//! The engine: sends each request to the session that it belongs to.

use std::{fmt, sync::Arc};

use latchwork_core::{
    Clock, Key,
    engine::{
        AcquireRequest, AnnounceRequest, Attempt, Engine, EngineError, EngineErrorKind, EngineEvents, FencedRequest,
        IncumbentRequest, LedgerRequest, ReleaseRequest, SlotsRequest,
    },
};
use tokio::sync::oneshot;

use crate::{
    inbox::{Inquiry, Parked, is_patient},
    shared::Shared,
};

/// The engine of one process. Its sessions end when it is dropped.
pub(crate) struct PostgresEngine {
    pub(crate) shared: Arc<Shared>,
}

impl PostgresEngine {
    fn park(&self, parked: Parked) {
        let session = self.shared.roomy_session();
        session.inbox.park(self.shared.next_poll(), parked);
        session.unclaim(1);
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
                self.shared.primary().go_on_waiting(&self.shared, wait);
            }
            Attempt::Queue { .. } | Attempt::Poll => {
                let wait = self.shared.waits.begin(request);
                self.park(Parked::Wait(wait));
            }
            Attempt::Probe => self.shared.primary().inbox.push(|work| work.probes.push(request)),
            _ => self.shared.ask_once(request),
        }
    }

    fn abandon(&self, key: Key, flight: u64) {
        if self.shared.waits.abandon(key, flight) {
            self.shared
                .sessions()
                .iter()
                .for_each(|session| session.inbox.end_abandoned());
        }
    }

    fn release(&self, request: ReleaseRequest) {
        let session = request.grant.session().id();
        if self.shared.primary().is(session) {
            return self.shared.primary().inbox.push(|work| work.releases.push(request));
        }
        if let Some(own) = self.shared.sessions().iter().find(|own| own.is(session)) {
            return own.inbox.push(|work| work.releases.push(request));
        }
        if let Some(request) = self.shared.waiters.release(request) {
            // The session has ended, and the lock with it.
            request.reply.send(Ok(false));
        }
    }

    fn take_slots(&self, request: SlotsRequest) {
        if let Some(error) = self.refusal(request.later) {
            return request.reply.send(Err(error));
        }
        if request.later {
            self.park(Parked::Slots(request));
        } else {
            let session = self.shared.session_for_some();
            session.inbox.push(|work| work.slots.push(request));
            session.unclaim(1);
        }
    }

    fn acquire_fenced(&self, request: FencedRequest) {
        if let Some(error) = self.refusal(true) {
            return request.reply.send(Err(error));
        }
        request.reply.prepares(true);
        self.shared.fenced.assign(&self.shared, request);
    }

    fn incumbent(&self, request: IncumbentRequest) {
        if let Some(error) = self.refusal(false) {
            return request.reply.send(Err(error));
        }
        let inquiry = Inquiry::Incumbent(request);
        self.shared.primary().inbox.push(|work| work.inquiries.push(inquiry));
    }

    fn ledger(&self, request: LedgerRequest) {
        if let Some(error) = self.refusal(false) {
            return request.fail(error);
        }
        self.shared.ledger.ask(&self.shared, request);
    }

    fn announce(&self, request: AnnounceRequest) {
        let inquiry = Inquiry::Announce(request);
        self.shared.primary().inbox.push(|work| work.inquiries.push(inquiry));
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
