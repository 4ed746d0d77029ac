//! A server, the processes on it, and the network between, on the clock of a paused runtime. It keeps the rules that an
//! engine keeps: pings, limits, the server's own limit for silent sessions, the age of a session before its grant, and the
//! delay for which a vacant key is left to others.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard},
    time::Duration,
};

use tokio::sync::oneshot;

use super::work::AtWork;
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
    waiting: Vec<Waiting>,
    at_work: AtWork,
}

#[derive(Debug)]
struct Waiting {
    session: u64,
    request: FencedRequest,
    /// Until when it leaves a vacant key to others; it does not queue meanwhile.
    leaves_until: Option<Moment>,
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
            let last = self.terms.keys().next_back().copied();
            self.at_work.loses(last.expect("it was granted"));
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
        let of = |waiting: &Waiting| &sessions[usize::try_from(waiting.session).unwrap()];
        self.waiting
            .retain(|waiting| !waiting.request.reply.is_abandoned() && !of(waiting).health.is_lost());
        let cut = &self.cut;
        let can_ask = |waiting: &Waiting| {
            let session = of(waiting);
            session.alive && !cut[session.process] && now.since(session.opened) >= TRUST
        };
        let mut may_have_it = None;
        let is_vacant = self.holder.is_none();
        for (at, waiting) in self.waiting.iter_mut().enumerate() {
            if waiting.leaves_until.is_some() || !is_vacant || !can_ask(waiting) {
                continue;
            }
            let delay = waiting.request.campaign_delay;
            if delay.is_zero() {
                may_have_it = Some(at);
                break;
            }
            // It was granted the key, and has let it go again.
            waiting.leaves_until = Some(now.after(delay));
        }
        let is_due = |waiting: &Waiting| waiting.leaves_until.is_some_and(|until| until <= now) && can_ask(waiting);
        if may_have_it.is_none() && is_vacant {
            may_have_it = self.waiting.iter().position(is_due);
        }
        let granted = may_have_it.map(|at| self.waiting.remove(at));
        // The others have come in vain, and queue again.
        let due: Vec<_> = self.waiting.extract_if(.., |waiting| is_due(waiting)).collect();
        self.waiting.extend(due.into_iter().map(|waiting| Waiting {
            leaves_until: None,
            ..waiting
        }));
        let Waiting {
            session: id, request, ..
        } = granted?;
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
            at_work: AtWork::default(),
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
            tokio::spawn(self.clone().hold(id, grant.term, release));
            request.reply.send(Ok(Some(grant)));
        }
    }

    async fn hold(self, id: u64, term: Term, mut release: FencedRelease) {
        let asks = release.given_up().await;
        let held = {
            let mut state = self.state();
            let held = state.holder == Some(id) && !state.is_cut(id);
            if held {
                let now = state.clock.now();
                state.at_work.gives_up(term, now);
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

    /// Looks at who is at work, or changes that.
    pub(super) fn with_works<T>(&self, look: impl FnOnce(&mut AtWork, Moment) -> T) -> T {
        let mut state = self.state();
        let now = state.clock.now();
        look(&mut state.at_work, now)
    }

    /// Whether a lock that was granted is not held any more.
    pub(super) fn is_ended(&self, term: Term) -> bool {
        let state = self.state();
        state.holder.is_none() || state.terms.keys().next_back() != Some(&term)
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
        state.waiting.push(Waiting {
            session,
            request,
            leaves_until: None,
        });
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
