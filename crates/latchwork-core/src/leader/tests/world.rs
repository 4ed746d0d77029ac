//! A server, the processes on it, and the network between, on the clock of a paused runtime. It keeps the rules that an
//! engine keeps: pings, limits, the server's own limit for silent sessions, and the age of a session before its grant.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard},
    time::Duration,
};

use tokio::sync::oneshot;

use crate::{
    Locks, LocksOptions, Mode,
    clock::{Clock, Moment},
    engine::{
        AcquireRequest, AnnounceRequest, Engine, EngineError, EngineErrorKind, EngineEvents, FencedGrant,
        FencedRelease, FencedRequest, IncumbentRequest, LedgerRequest, ReleaseRequest, SlotsRequest,
    },
    fence::{Fence, Term},
    key::Key,
    locks::lock,
    session::SessionHealth,
};

const PING_INTERVAL: Duration = Duration::from_secs(2);
const PING_LIMIT: Duration = Duration::from_secs(3);
pub(super) const TRUST: Duration = Duration::from_secs(5);
/// When a session that is silent is given up, by both sides.
const GIVEN_UP: Duration = Duration::from_secs(15);

#[derive(Clone, Debug)]
pub(super) struct World(Arc<Mutex<State>>);

#[derive(Debug)]
struct State {
    clock: Clock,
    sessions: Vec<Session>,
    holder: Option<u64>,
    /// Which session each term was granted on.
    terms: BTreeMap<Term, usize>,
    /// Whether nothing passes between a process and the server.
    cut: Vec<bool>,
    waiting: Vec<(u64, FencedRequest)>,
}

#[derive(Debug)]
struct Session {
    process: usize,
    health: Arc<SessionHealth>,
    opened: Moment,
    /// When the last ping that was answered was sent, which is when the server heard of it.
    answered: Moment,
    alive: bool,
    idle: bool,
    /// Ended alone, while its process could not see that.
    ended_unseen: bool,
}

impl State {
    fn session(&mut self, id: u64) -> &mut Session {
        &mut self.sessions[usize::try_from(id).unwrap()]
    }

    /// Whether nothing passes between this session's process and the server.
    fn is_cut(&self, id: u64) -> bool {
        self.cut[self.sessions[usize::try_from(id).unwrap()].process]
    }

    fn end_on_server(&mut self, id: u64) {
        self.session(id).alive = false;
        if self.holder == Some(id) {
            self.holder = None;
        }
    }

    /// A session of a process that nobody uses, or a new one.
    fn take_session(&mut self, process: usize) -> u64 {
        if let Some(at) = self.sessions.iter().position(|session| {
            session.process == process && session.idle && session.alive && !session.health.is_lost()
        }) {
            self.sessions[at].idle = false;
            return at as u64;
        }
        let (id, now) = (self.sessions.len() as u64, self.clock.now());
        let health = SessionHealth::new(id, self.clock.clone(), now.after(TRUST));
        self.sessions.push(Session {
            process,
            health: Arc::new(health),
            opened: now,
            answered: now,
            alive: true,
            idle: false,
            ended_unseen: false,
        });
        id
    }

    fn keep_sessions(&mut self) {
        let now = self.clock.now();
        for id in 0..self.sessions.len() as u64 {
            let cut = self.is_cut(id);
            let session = self.session(id);
            let silent = now.since(session.answered);
            if session.health.is_lost() {
                if session.alive && !cut {
                    self.end_on_server(id);
                }
                continue;
            }
            if cut || !session.alive {
                let closed = !session.alive && !cut;
                if silent >= PING_INTERVAL + PING_LIMIT {
                    session.health.suspend();
                }
                if closed || silent >= GIVEN_UP {
                    session.health.lose();
                }
            } else if silent >= PING_INTERVAL {
                session.answered = now;
                session.health.trust_until(now.after(TRUST));
            }
            if self.session(id).alive && now.since(self.session(id).answered) >= GIVEN_UP {
                self.end_on_server(id);
            }
        }
    }

    /// Grants to the first in the queue that may have it.
    fn grant(&mut self) -> Option<(u64, FencedRequest, FencedGrant, FencedRelease)> {
        let now = self.clock.now();
        // Those whose session is lost are answered by being dropped.
        let sessions = &self.sessions;
        self.waiting.retain(|(id, request)| {
            !request.reply.is_abandoned() && !sessions[usize::try_from(*id).unwrap()].health.is_lost()
        });
        if self.holder.is_some() {
            return None;
        }
        let at = self.waiting.iter().position(|(id, _)| {
            let session = &self.sessions[usize::try_from(*id).unwrap()];
            session.alive && !self.cut[session.process] && now.since(session.opened) >= TRUST
        })?;
        let (id, request) = self.waiting.remove(at);
        self.holder = Some(id);
        let term = Term::new(1, self.terms.len() as u64);
        self.terms.insert(term, usize::try_from(id).unwrap());
        let health = Arc::clone(&self.session(id).health);
        let fence = Fence::fresh(request.key, Mode::Exclusive);
        let (grant, release) = FencedGrant::new(health, fence, term);
        Some((id, request, grant, release))
    }
}

impl World {
    pub(super) fn new(processes: usize) -> Self {
        let state = State {
            clock: Clock::of_tokio(),
            sessions: Vec::new(),
            holder: None,
            terms: BTreeMap::new(),
            cut: vec![false; processes],
            waiting: Vec::new(),
        };
        Self(Arc::new(Mutex::new(state)))
    }

    fn state(&self) -> MutexGuard<'_, State> {
        lock(&self.0)
    }

    pub(super) fn locks(&self, process: usize) -> Locks {
        let (world, clock) = (self.clone(), self.state().clock.clone());
        let engine = SimulatedEngine { world, process, clock };
        Locks::new(Arc::new(engine), LocksOptions::default())
    }

    pub(super) fn cut(&self, process: usize, cut: bool) {
        self.state().cut[process] = cut;
    }

    /// An administrator ends the holder's session.
    pub(super) fn end_holder(&self) {
        let mut state = self.state();
        if let Some(id) = state.holder {
            state.end_on_server(id);
            let cut = state.is_cut(id);
            state.session(id).ended_unseen = cut;
        }
    }

    /// All sessions end in one moment.
    pub(super) fn restart(&self) {
        let mut state = self.state();
        for id in 0..state.sessions.len() as u64 {
            state.end_on_server(id);
        }
    }

    /// What the engines do in a moment.
    pub(super) fn step(&self) {
        let mut state = self.state();
        state.keep_sessions();
        let granted = state.grant();
        drop(state);
        if let Some((id, request, grant, release)) = granted {
            tokio::spawn(self.clone().hold(id, release));
            request.reply.send(Ok(Some(grant)));
        }
    }

    async fn hold(self, id: u64, mut release: FencedRelease) {
        let asks = release.given_up().await;
        let held = {
            let mut state = self.state();
            let held = state.holder == Some(id) && !state.is_cut(id);
            if held {
                state.holder = None;
                state.session(id).idle = true;
            } else {
                // It can't be told, so the connection is closed.
                state.session(id).health.lose();
            }
            held
        };
        if let Some(asks) = asks {
            let _ = asks.send(Ok(held));
        }
    }

    /// Whether the leader of a term may believe in itself though another leads: its session was ended alone, and its
    /// process could not see that.
    pub(super) fn is_deceived(&self, term: Term) -> bool {
        let state = self.state();
        let session = &state.sessions[state.terms[&term]];
        session.ended_unseen
    }
}

#[derive(Debug)]
struct SimulatedEngine {
    world: World,
    process: usize,
    clock: Clock,
}

impl Engine for SimulatedEngine {
    fn attach(&self, _: EngineEvents) {}

    fn acquire(&self, _: AcquireRequest) {}

    fn abandon(&self, _: Key, _: u64) {}

    fn release(&self, _: ReleaseRequest) {}

    fn take_slots(&self, _: SlotsRequest) {}

    fn acquire_fenced(&self, request: FencedRequest) {
        let mut state = self.world.state();
        if state.cut[self.process] {
            drop(state);
            return request.reply.send(Err(EngineError::new(EngineErrorKind::Unavailable)));
        }
        let session = state.take_session(self.process);
        state.waiting.push((session, request));
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
        self.clock.clone()
    }
}
