//! One session of the server in memory.

use std::{
    fmt,
    sync::{
        Arc, Mutex, OnceLock, Weak,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use tokio::{runtime::Handle, sync::oneshot};

use super::{Shared, fenced};
use crate::{
    clock::{Clock, Moment},
    engine::{
        AcquireRequest, AnnounceRequest, Announced, Attempt, Engine, EngineError, EngineErrorKind, EngineEvents,
        FencedRequest, Grant, IncumbentRequest, LedgerRequest, ReleaseRequest, SlotsRequest,
    },
    key::Key,
    leader::Incumbent,
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
    /// The sessions of fenced locks, each of which holds one.
    pub(super) fenced: Mutex<Vec<Arc<SessionHealth>>>,
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
            fenced: Mutex::default(),
        }
    }

    /// Loses the sessions of engines, all in one moment, and begins others.
    pub(super) fn restart(shared: &Arc<Shared>, engines: &[Arc<Self>]) {
        let lost = engines
            .iter()
            .map(|engine| std::mem::replace(&mut *lock(&engine.session), begin_session(shared)));
        let mut lost: Vec<_> = lost.collect();
        // Told to no gate, but by themselves; so they come behind those that are told with their engine.
        lost.extend(
            engines
                .iter()
                .flat_map(|engine| std::mem::take(&mut *lock(&engine.fenced))),
        );
        Self::end(shared, &lost, engines.iter().map(Arc::as_ref));
    }

    /// Ends sessions, and then tells all whom that concerns.
    fn end<'a>(shared: &Shared, sessions: &[Arc<SessionHealth>], engines: impl Iterator<Item = &'a Self>) {
        // Before they end on the server: whoever finds a session alive under the state's mutex can use it.
        sessions.iter().for_each(|session| session.lose());
        let mut granted = Vec::new();
        let mut state = lock(&shared.state);
        let ids: Vec<u64> = sessions.iter().map(|session| session.id()).collect();
        let dropped = state.end_sessions(&ids, &mut granted);
        drop(state);
        shared.tell(granted);
        // A request that is dropped answers that its connection was lost.
        drop(dropped);
        for (engine, session) in engines.zip(sessions) {
            if let Some(events) = engine.events.get() {
                events.session_lost(session);
            }
        }
    }

    pub(super) fn session(&self) -> Arc<SessionHealth> {
        Arc::clone(&lock(&self.session))
    }

    /// All sessions, the one of the gate first.
    fn sessions(&self) -> Vec<Arc<SessionHealth>> {
        let fenced = std::mem::take(&mut *lock(&self.fenced));
        std::iter::once(self.session()).chain(fenced).collect()
    }

    pub(super) fn is_closed(&self) -> bool {
        self.closed.load(Ordering::Acquire)
    }

    fn ask_for_slots(&self, request: SlotsRequest) {
        let session = self.session();
        let candidates = request.reply.candidates();
        let mut granted = Vec::new();
        let mut state = lock(&self.shared.state);
        if session.is_lost() {
            drop(state);
            // Answers that its connection was lost.
            return drop(request);
        }
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
        if session.is_lost() {
            drop(state);
            // Answers that its connection was lost.
            return drop(request);
        }
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
        self.shared.tell(granted);
        if let Some(request) = request {
            request.reply.send(Ok(None));
        }
    }

    fn release(&self, request: ReleaseRequest) {
        let mut granted = Vec::new();
        let session = request.grant.session().id();
        let held = lock(&self.shared.state).release(session, request.key, request.mode, &mut granted);
        request.reply.send(Ok(held));
        self.shared.tell(granted);
    }

    fn take_slots(&self, request: SlotsRequest) {
        if self.closed.load(Ordering::Acquire) {
            return request.reply.send(Err(EngineError::new(EngineErrorKind::Closed)));
        }
        if !request.later {
            return self.ask_for_slots(request);
        }
        let later = Later {
            engine: Weak::clone(&self.this),
            request: Some(request),
        };
        match Handle::try_current() {
            Ok(runtime) => drop(runtime.spawn(async move {
                tokio::time::sleep(POLL_INTERVAL).await;
                later.ask();
            })),
            // A permit may be given up on any thread.
            Err(_) => drop(later),
        }
    }

    fn acquire_fenced(&self, request: FencedRequest) {
        fenced::begin(&self.this, &self.shared, request);
    }

    fn incumbent(&self, request: IncumbentRequest) {
        let holder = lock(&self.shared.state).holder(request.key);
        let incumbents = lock(&self.shared.incumbents);
        let incumbent = holder.map(|session| {
            let fenced = incumbents.get(&session).cloned();
            fenced.unwrap_or_else(|| Incumbent::new(identity(session)))
        });
        drop(incumbents);
        request.reply.send(Ok(incumbent));
    }

    fn ledger(&self, request: LedgerRequest) {
        if self.is_closed() {
            return request.fail(EngineError::new(EngineErrorKind::Closed));
        }
        lock(&self.shared.ledger).take(request, &identity(self.session().id()));
    }

    fn announce(&self, request: AnnounceRequest) {
        let session = self.session();
        let mut state = lock(&self.shared.state);
        if session.is_lost() {
            return;
        }
        if request.held.is_none() {
            state.try_grant(session.id(), request.marker, Mode::Shared);
        }
        let others = state.other_markers(request.marker);
        drop(state);
        request.reply.send(Ok(Announced {
            grant: request.held.unwrap_or_else(|| Grant::new(session)),
            others: Ok(others),
        }));
    }

    fn close(&self, done: oneshot::Sender<()>) {
        self.closed.store(true, Ordering::Release);
        Self::end(&self.shared, &self.sessions(), std::iter::once(self));
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
        Self::end(&self.shared, &self.sessions(), std::iter::once(&*self));
    }
}

impl fmt::Debug for MemoryEngine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MemoryEngine")
            .field("session", &lock(&self.session))
            .finish_non_exhaustive()
    }
}

/// A request for slots that waits for its poll interval.
struct Later {
    engine: Weak<MemoryEngine>,
    request: Option<SlotsRequest>,
}

impl Later {
    fn ask(mut self) {
        if let (Some(engine), Some(request)) = (self.engine.upgrade(), self.request.take()) {
            engine.ask_for_slots(request);
        }
    }
}

impl Drop for Later {
    fn drop(&mut self) {
        let Some(request) = self.request.take() else {
            return;
        };
        // The runtime that it waited on has ended, or there was none; but others may wait for the answer.
        let later = Self {
            engine: Weak::clone(&self.engine),
            request: Some(request),
        };
        let spawned = std::thread::Builder::new().spawn(move || {
            std::thread::sleep(POLL_INTERVAL);
            later.ask();
        });
        drop(spawned);
    }
}

pub(super) fn begin_session(shared: &Shared) -> Arc<SessionHealth> {
    let id = shared.sessions.fetch_add(1, Ordering::Relaxed) + 1;
    Arc::new(SessionHealth::new(id, Clock::system(), Moment::NEVER))
}

/// How a session shows itself to others.
pub(super) fn identity(session: u64) -> String {
    format!("memory#{session:08x}")
}
