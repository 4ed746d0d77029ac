//! One session of the server in memory.

use std::{
    collections::HashMap,
    fmt,
    sync::{
        Arc, Mutex, OnceLock, Weak,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use tokio::{runtime::Handle, sync::oneshot};

use super::{Shared, state::Granted};
use crate::{
    clock::{Clock, Moment},
    engine::{
        AcquireRequest, AnnounceRequest, Announced, Attempt, Engine, EngineError, EngineErrorKind, EngineEvents, Grant,
        ReleaseRequest, SlotsRequest,
    },
    key::Key,
    locks::lock,
    mode::Mode,
    session::SessionHealth,
};

/// How often a pool of slots is asked again.
const POLL_INTERVAL: Duration = Duration::from_millis(5);

pub(super) struct MemoryEngine {
    this: Weak<Self>,
    shared: Arc<Shared>,
    session: Mutex<Arc<SessionHealth>>,
    events: OnceLock<EngineEvents>,
    closed: AtomicBool,
}

impl MemoryEngine {
    pub(super) fn new(shared: Arc<Shared>, this: Weak<Self>) -> Self {
        let session = Mutex::new(begin_session(&shared));
        Self {
            this,
            shared,
            session,
            events: OnceLock::new(),
            closed: AtomicBool::new(false),
        }
    }

    /// Loses the session and begins another.
    pub(super) fn restart(&self) {
        let lost = std::mem::replace(&mut *lock(&self.session), begin_session(&self.shared));
        self.end(&lost);
    }

    fn end(&self, session: &SessionHealth) {
        session.lose();
        let mut granted = Vec::new();
        let dropped = lock(&self.shared.state).end_session(session.id(), &mut granted);
        self.tell(granted);
        // A request that is dropped answers that its connection was lost.
        drop(dropped);
        if let Some(events) = self.events.get() {
            events.session_lost(session);
        }
    }

    fn session(&self) -> Arc<SessionHealth> {
        Arc::clone(&lock(&self.session))
    }

    /// Tells those whose requests were granted, on whichever engine they are.
    fn tell(&self, granted: Vec<Granted>) {
        if granted.is_empty() {
            return;
        }
        let sessions: HashMap<u64, Arc<SessionHealth>> = lock(&self.shared.engines)
            .iter()
            .filter_map(Weak::upgrade)
            .map(|engine| engine.session())
            .map(|session| (session.id(), session))
            .collect();
        for (session, request) in granted {
            match sessions.get(&session) {
                Some(session) => request.reply.send(Ok(Some(Grant::new(Arc::clone(session))))),
                // It ended in between, and its holds with it.
                None => drop(request),
            }
        }
    }

    fn ask_for_slots(&self, request: SlotsRequest) {
        let session = self.session();
        let candidates = request.reply.candidates();
        let mut granted = Vec::new();
        let mut state = lock(&self.shared.state);
        for (at, key) in candidates.keys.iter().enumerate() {
            if granted.len() == candidates.want {
                break;
            }
            if state.try_grant(session.id(), *key, Mode::Exclusive) {
                granted.push((at, Grant::new(Arc::clone(&session))));
            }
        }
        drop(state);
        request.reply.send(Ok(granted));
    }
}

impl Engine for MemoryEngine {
    fn attach(&self, events: EngineEvents) {
        // Locks attach their engine once.
        let _ = self.events.set(events);
    }

    fn acquire(&self, request: AcquireRequest) {
        if self.closed.load(Ordering::Acquire) {
            return request.reply.send(Err(EngineError::new(EngineErrorKind::Closed)));
        }
        let session = self.session();
        let mut state = lock(&self.shared.state);
        let granted = match request.attempt {
            Attempt::Probe => state.admits(request.key, request.mode),
            _ => state.try_grant(session.id(), request.key, request.mode),
        };
        if !granted && matches!(request.attempt, Attempt::Queue { .. } | Attempt::Poll) {
            return state.queue(session.id(), request);
        }
        drop(state);
        request.reply.send(Ok(granted.then(|| Grant::new(session))));
    }

    fn abandon(&self, key: Key, flight: u64) {
        let mut granted = Vec::new();
        let request = lock(&self.shared.state).abandon(self.session().id(), key, flight, &mut granted);
        self.tell(granted);
        if let Some(request) = request {
            request.reply.send(Ok(None));
        }
    }

    fn release(&self, request: ReleaseRequest) {
        let mut granted = Vec::new();
        let session = request.grant.session().id();
        let held = lock(&self.shared.state).release(session, request.key, request.mode, &mut granted);
        request.reply.send(Ok(held));
        self.tell(granted);
    }

    fn take_slots(&self, request: SlotsRequest) {
        if self.closed.load(Ordering::Acquire) {
            return request.reply.send(Err(EngineError::new(EngineErrorKind::Closed)));
        }
        if !request.later {
            return self.ask_for_slots(request);
        }
        let this = Weak::clone(&self.this);
        let again = move || match this.upgrade() {
            Some(engine) => engine.ask_for_slots(request),
            None => drop(request),
        };
        if let Ok(runtime) = Handle::try_current() {
            runtime.spawn(async move {
                tokio::time::sleep(POLL_INTERVAL).await;
                again();
            });
        } else {
            // A permit may be given up on any thread.
            std::thread::spawn(move || {
                std::thread::sleep(POLL_INTERVAL);
                again();
            });
        }
    }

    fn announce(&self, request: AnnounceRequest) {
        let session = self.session();
        let mut state = lock(&self.shared.state);
        if request.held.is_none() {
            state.try_grant(session.id(), request.marker, Mode::Shared);
        }
        let others = state.other_markers(request.marker);
        drop(state);
        request.reply.send(Announced {
            grant: request.held.unwrap_or_else(|| Grant::new(session)),
            others,
        });
    }

    fn close(&self, done: oneshot::Sender<()>) {
        self.closed.store(true, Ordering::Release);
        self.end(&self.session());
        // Whoever closed may have gone.
        let _ = done.send(());
    }

    fn outage(&self) -> Option<EngineError> {
        None
    }

    fn clock(&self) -> Clock {
        Clock::system()
    }
}

impl Drop for MemoryEngine {
    fn drop(&mut self) {
        let session = self.session();
        self.end(&session);
    }
}

impl fmt::Debug for MemoryEngine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MemoryEngine")
            .field("session", &lock(&self.session))
            .finish_non_exhaustive()
    }
}

fn begin_session(shared: &Shared) -> Arc<SessionHealth> {
    let id = shared.sessions.fetch_add(1, Ordering::Relaxed) + 1;
    Arc::new(SessionHealth::new(id, Clock::system(), Moment::NEVER))
}
