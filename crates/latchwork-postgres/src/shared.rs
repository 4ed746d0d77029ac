//! What the sessions of one engine share.

use std::{
    error::Error,
    sync::{
        Arc, Mutex, OnceLock, Weak,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::Duration,
};

use latchwork_core::{
    Clock, Moment, SessionHealth,
    engine::{AcquireRequest, EngineError, EngineEvents},
};
use tokio::{runtime::Handle, sync::mpsc};
use tracing::{debug, warn};

use crate::{
    checks::ServerFacts,
    config::Config,
    connect::{self, ConnectError, Connected, SessionSettings},
    error::{StatementError, unreachable},
    fenced::FencedPool,
    identity::Identity,
    ledger::Ledger,
    link::{Link, OnSilence},
    lock_session::LockSession,
    options::{PostgresOptions, Timing},
    queue::WaiterPool,
    room::Room,
    sync::lock,
    wait::Waits,
};

/// How long no further session, for locks or for waits, is opened after one could not connect.
pub(crate) const PAUSE_AFTER_FAILURE: Duration = Duration::from_secs(2);

/// Whether the server can be asked.
#[derive(Clone, Debug)]
pub(crate) enum Availability {
    Up,
    /// There was an outage, and what ends it may be under way.
    Doubtful(EngineError),
    /// The last attempt to connect has failed.
    Down(EngineError),
}

/// The engine's state, as all its tasks see it.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) config: Config,
    pub(crate) options: PostgresOptions,
    pub(crate) identity: Identity,
    pub(crate) clock: Clock,
    pub(crate) room: Room,
    pub(crate) waits: Arc<Waits>,
    pub(crate) waiters: WaiterPool,
    pub(crate) fenced: FencedPool,
    pub(crate) ledger: Ledger,
    primary: OnceLock<Arc<LockSession>>,
    further: Mutex<Vec<Arc<LockSession>>>,
    /// Until when no further session is opened, because one could not connect.
    further_paused_until: Mutex<Moment>,
    pub(crate) runtime: Handle,
    events: OnceLock<EngineEvents>,
    facts: Mutex<Option<ServerFacts>>,
    availability: Mutex<Availability>,
    /// Read on the hot path instead of the mutex above.
    is_up: AtomicBool,
    is_closing: AtomicBool,
    next_session: AtomicU64,
    /// Each task of the engine holds a clone, so that the last one to end is noticed.
    alive: Mutex<Option<mpsc::Sender<()>>>,
    ended: tokio::sync::Mutex<mpsc::Receiver<()>>,
}

impl Shared {
    pub(crate) fn new(config: Config, options: PostgresOptions, runtime: Handle) -> Self {
        let (alive, ended) = mpsc::channel(1);
        let identity = Identity::new(
            options
                .application_name
                .as_deref()
                .or_else(|| config.application_name()),
        );
        Self {
            config,
            identity,
            clock: Clock::system(),
            room: Room::new(options.max_locks.unwrap_or(usize::MAX)),
            waits: Arc::new(Waits::default()),
            waiters: WaiterPool::new(options.waiter_sessions),
            fenced: FencedPool::new(options.fenced_sessions),
            ledger: Ledger::default(),
            primary: OnceLock::new(),
            further: Mutex::default(),
            runtime,
            events: OnceLock::new(),
            facts: Mutex::new(None),
            availability: Mutex::new(Availability::Doubtful(not_connected_yet())),
            is_up: AtomicBool::new(false),
            is_closing: AtomicBool::new(false),
            next_session: AtomicU64::new(1),
            alive: Mutex::new(Some(alive)),
            ended: tokio::sync::Mutex::new(ended),
            further_paused_until: Mutex::default(),
            options,
        }
    }

    pub(crate) fn attach(&self, events: EngineEvents) {
        // Locks attach their engine once.
        let _ = self.events.set(events);
    }

    /// Runs a task of the engine, unless it closes. Says whether it runs.
    pub(crate) fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) -> bool {
        let Some(alive) = lock(&self.alive).clone() else {
            return false;
        };
        self.runtime.spawn(async move {
            task.await;
            drop(alive);
        });
        true
    }

    /// Connects and checks.
    pub(crate) async fn connect(&self) -> Result<Connected, ConnectError> {
        let mut settings = SessionSettings::default()
            .with_silence(self.options.timing.silence())
            .with_exclusion_probe(self.options.exclusion_probe);
        settings.application_name = Some(self.identity.application_name());
        let known = lock(&self.facts).clone();
        let connected = connect::connect(&self.config, &settings, known.as_ref()).await?;
        self.learn(&connected.facts);
        Ok(connected)
    }

    pub(crate) fn learn(&self, facts: &ServerFacts) {
        if self.options.max_locks.is_none() {
            self.room
                .set_limit(usize::try_from(facts.lock_capacity / 4).unwrap_or(usize::MAX));
        }
        *lock(&self.facts) = Some(facts.clone());
    }

    pub(crate) fn facts(&self) -> Option<ServerFacts> {
        lock(&self.facts).clone()
    }

    /// Puts a connection under our care, with a number of its own.
    pub(crate) fn link(&self, connected: Connected, on_silence: OnSilence) -> Link {
        self.link_with(connected, self.options.timing, on_silence)
    }

    /// As [`Shared::link`], with other limits.
    pub(crate) fn link_with(&self, connected: Connected, timing: Timing, on_silence: OnSilence) -> Link {
        let id = self.next_session.fetch_add(1, Ordering::Relaxed);
        Link::new(connected, id, self.clock.clone(), timing, on_silence)
    }

    /// A wait slice, or a poll interval, give or take a fifth.
    pub(crate) fn jittered(duration: Duration) -> Duration {
        duration.mul_f64(fastrand::f64().mul_add(0.4, 0.8))
    }

    /// When a key is asked for again that was not free: after one full interval at least, so that of two processes that
    /// poll for it each can find it free.
    pub(crate) fn next_poll(&self) -> Moment {
        self.clock
            .now()
            .after(self.options.poll_interval.mul_f64(fastrand::f64().mul_add(0.4, 1.0)))
    }

    pub(crate) fn is_up(&self) -> bool {
        self.is_up.load(Ordering::Acquire)
    }

    pub(crate) fn set_availability(&self, availability: Availability) {
        self.is_up
            .store(matches!(availability, Availability::Up), Ordering::Release);
        *lock(&self.availability) = availability;
    }

    /// Why the server can't be asked, if it can't.
    pub(crate) fn outage(&self) -> Option<EngineError> {
        if self.is_up() {
            return self.overdue();
        }
        match &*lock(&self.availability) {
            Availability::Up => None,
            Availability::Doubtful(error) | Availability::Down(error) => Some(error.clone()),
        }
    }

    /// A silence that suspends nothing yet. But one whose own limit ends in it must not be told that others hold the key.
    fn overdue(&self) -> Option<EngineError> {
        let limit = self.primary.get()?.unanswered_for(self.clock.now());
        (limit >= self.options.timing.ping_limit() / 2).then(|| StatementError::Silent { limit }.into_engine())
    }

    /// The answer to one who does not wait for an outage to end, if there is one that is known to last.
    pub(crate) fn known_outage(&self) -> Option<EngineError> {
        if self.is_up() {
            return None;
        }
        match &*lock(&self.availability) {
            Availability::Down(error) => Some(error.clone()),
            Availability::Up | Availability::Doubtful(_) => None,
        }
    }

    /// Tells the gate that a session and all that it held is gone.
    pub(crate) fn session_lost(&self, health: &SessionHealth, held: usize, why: &dyn std::fmt::Display) {
        health.lose();
        self.room.give_back(held);
        if held > 0 {
            warn!(target: "latchwork::postgres", session = health.id(), held, %why, "a session was lost with its locks");
        } else {
            debug!(target: "latchwork::postgres", session = health.id(), %why, "a session has ended");
        }
        if let Some(events) = self.events.get() {
            events.session_lost(health);
        }
    }

    /// Tells those who wait for one attempt that the server does not answer.
    pub(crate) fn server_silent(&self, error: &EngineError) {
        if let Some(events) = self.events.get() {
            events.server_silent(error);
        }
    }

    /// Words a failed attempt to connect, tells those who do not wait, and returns the words.
    pub(crate) fn connect_failed(&self, error: ConnectError) -> EngineError {
        warn!(target: "latchwork::postgres", error = &error as &dyn Error, "cannot connect");
        let error = unreachable(error);
        self.set_availability(Availability::Down(error.clone()));
        self.server_silent(&error);
        error
    }

    pub(crate) fn is_closing(&self) -> bool {
        self.is_closing.load(Ordering::Acquire)
    }

    /// Tells all sessions to finish.
    pub(crate) fn begin_close(&self) {
        self.is_closing.store(true, Ordering::Release);
        drop(lock(&self.alive).take());
        if self.primary.get().is_some() {
            self.sessions().iter().for_each(|session| session.inbox.close());
        }
        self.waiters.close();
        self.fenced.close();
        self.ledger.close();
    }

    /// Resolves when all tasks have ended.
    pub(crate) async fn ended(&self) {
        // Nothing is ever sent; the channel closes when the last task drops its end.
        let _ = self.ended.lock().await.recv().await;
    }

    /// The first lock session. It is there as long as the engine.
    pub(crate) fn primary(&self) -> &Arc<LockSession> {
        self.primary.get().expect("an engine begins with its first session")
    }

    /// All lock sessions, the first one first. No lock is held while they are used: an answer that they give may lead
    /// back here.
    pub(crate) fn sessions(&self) -> Vec<Arc<LockSession>> {
        let further = lock(&self.further);
        std::iter::once(self.primary()).chain(further.iter()).cloned().collect()
    }

    /// Begins with the first lock session.
    pub(crate) fn begin(self: &Arc<Self>, first: Option<Connected>) {
        let primary = self.primary.get_or_init(|| Arc::new(LockSession::new(true)));
        self.spawn(Arc::clone(primary).run(Arc::clone(self), first));
    }

    /// Asks for a key: on a session with room for another lock, opened if there is none. While the first session is
    /// giving the key back it is that one, whose statements are in order: elsewhere the key would be found held.
    pub(crate) fn ask_once(self: &Arc<Self>, request: AcquireRequest) {
        let primary = self.primary();
        let has_room = primary.load() < self.options.locks_per_session;
        if (has_room || primary.inbox.is_returning(request.key)) && primary.claim() {
            primary.ask_once(request);
        } else {
            self.roomy_session().ask_once(request);
        }
    }

    /// The session to ask on for some key of many, claimed for one request: the first one while it is giving anything
    /// back.
    pub(crate) fn session_for_some(self: &Arc<Self>) -> Arc<LockSession> {
        let primary = self.primary();
        if primary.inbox.is_releasing() && primary.claim() {
            return Arc::clone(primary);
        }
        self.roomy_session()
    }

    /// A session with room for another lock, opened if there is none, and claimed for one request.
    pub(crate) fn roomy_session(self: &Arc<Self>) -> Arc<LockSession> {
        let limit = self.options.locks_per_session;
        let primary = self.primary();
        if primary.load() < limit && primary.claim() {
            return Arc::clone(primary);
        }
        let mut further = lock(&self.further);
        if let Some(session) = further.iter().find(|session| session.load() < limit && session.claim()) {
            return Arc::clone(session);
        }
        if self.clock.now() < *lock(&self.further_paused_until) && primary.claim() {
            return Arc::clone(primary);
        }
        let session = Arc::new(LockSession::new(false));
        session.claim();
        further.push(Arc::clone(&session));
        drop(further);
        if !self.spawn(Arc::clone(&session).run(Arc::clone(self), None)) {
            session.inbox.end();
        }
        session
    }

    /// Has the first session take all for a while: more locks than there should be on one are better than none.
    pub(crate) fn pause_further_sessions(&self) {
        *lock(&self.further_paused_until) = self.clock.now().after(PAUSE_AFTER_FAILURE);
    }

    /// Forgets a session that takes no more requests.
    pub(crate) fn forget(&self, session: &LockSession) {
        lock(&self.further).retain(|other| !std::ptr::eq(Arc::as_ptr(other), session));
    }

    /// What a lock session does when the server does not answer. Its first one speaks for the server.
    pub(crate) fn on_silence(self: &Arc<Self>, primary: bool) -> OnSilence {
        let shared: Weak<Self> = Arc::downgrade(self);
        Arc::new(move |limit| {
            warn!(target: "latchwork::postgres", ?limit, "the server does not answer: what is held is suspended");
            if let Some(shared) = shared.upgrade() {
                let error = StatementError::Silent { limit }.into_engine();
                if primary {
                    // Until it answers, nobody is kept waiting for one more answer.
                    shared.set_availability(Availability::Down(error.clone()));
                }
                shared.server_silent(&error);
            }
        })
    }
}

fn not_connected_yet() -> EngineError {
    EngineError::new(latchwork_core::engine::EngineErrorKind::Unavailable)
}
