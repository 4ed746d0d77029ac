//! The server, the two processes, and what happens to them.

use std::{sync::Arc, time::Duration};

use super::side::{Answer, Polled, Request, Side, Stands};
use crate::{
    clock::{Clock, ClockHand, Moment},
    engine::{Attempt, EngineError, EngineErrorKind, Grant},
    gate::{HandOverBound, Want},
    key::Key,
    mode::Mode,
    session::SessionHealth,
    testing::{Seed, Server},
};

pub(super) const KEYS: [Key; 3] = [Key::bigint(1), Key::bigint(2), Key::pair(1, 2)];

/// Who waits in the server's queue: the process, the key, the flight.
type Wait = (usize, Key, u64);

pub(super) struct World {
    pub(super) seed: Seed,
    pub(super) clock: Clock,
    hand: ClockHand,
    pub(super) server: Server<Wait>,
    pub(super) sides: [Side; 2],
    pub(super) losses: bool,
    unordered: bool,
    sessions: u64,
    people: u32,
}

impl World {
    pub(super) fn new(seed: Seed, bound: HandOverBound, losses: bool, unordered: bool) -> Self {
        let (clock, hand) = Clock::manual();
        let mut sessions = 0;
        let sides = [(); 2].map(|()| {
            sessions += 1;
            let lock_session = Side::session(sessions, &clock);
            let mut waiter_session = Arc::clone(&lock_session);
            if unordered {
                sessions += 1;
                waiter_session = Side::session(sessions, &clock);
            }
            Side::new(bound, lock_session, waiter_session)
        });
        Self {
            seed,
            clock,
            hand,
            server: Server::new(),
            sides,
            losses,
            unordered,
            sessions,
            people: 0,
        }
    }

    /// Lets something happen.
    pub(super) fn step(&mut self) {
        let at = self.seed.rng.usize(..2);
        match self.seed.rng.u32(..100) {
            0..18 => self.somebody_comes(at),
            18..22 => self.somebody_leaves(at),
            22..24 => self.somebody_vanishes(at),
            24..36 => self.somebody_releases(at),
            36..40 => self.somebody_looks_again(at),
            40..44 => self.hand.advance(Duration::from_millis(self.seed.rng.u64(..4))),
            44..54 => drop(self.a_job_is_done(at)),
            54..66 => drop(self.a_request_arrives(at)),
            66..90 => drop(self.an_answer_arrives(at)),
            90..95 => drop(self.a_poll_is_due(at)),
            95..97 => drop(self.a_limit_runs_out(at)),
            97..99 if self.losses => self.doubt(at),
            99 if self.losses && self.seed.chance(3) => self.a_session_ends(at),
            _ => {}
        }
    }

    fn somebody_comes(&mut self, at: usize) {
        let key = KEYS[self.seed.rng.usize(..KEYS.len())];
        let mode = if self.seed.rng.bool() {
            Mode::Shared
        } else {
            Mode::Exclusive
        };
        let now = self.clock.now();
        let want = match self.seed.rng.u32(..8) {
            0..3 => Want::Try,
            3 => Want::Poll,
            4 => Want::Queue {
                until: now.after(Duration::from_millis(self.seed.rng.u64(..20))),
            },
            _ => Want::Queue { until: Moment::NEVER },
        };
        self.comes(at, key, mode, want);
    }

    pub(super) fn comes(&mut self, at: usize, key: Key, mode: Mode, want: Want) -> u32 {
        self.people += 1;
        let who = self.people;
        self.seed.note(|| format!("{at}: {who} wants {key} {mode} {want:?}"));
        self.sides[at].enter(who, key, mode, want);
        who
    }

    pub(super) fn one(&mut self, at: usize, who: impl Fn(&Stands) -> bool) -> Option<u32> {
        let mut those: Vec<u32> = self.sides[at]
            .people
            .iter()
            .filter(|(_, person)| who(&person.stands))
            .map(|(who, _)| *who)
            .collect();
        self.seed.take(&mut those)
    }

    fn somebody_leaves(&mut self, at: usize) {
        if let Some(who) = self.one(at, |stands| matches!(stands, Stands::Waits { .. })) {
            self.seed.note(|| format!("{at}: {who} leaves"));
            self.sides[at].leave(who);
        }
    }

    fn somebody_vanishes(&mut self, at: usize) {
        if let Some(who) = self.one(at, |stands| matches!(stands, Stands::Waits { .. })) {
            self.seed.note(|| format!("{at}: {who} vanishes"));
            self.sides[at].people.get_mut(&who).unwrap().stands = Stands::Vanished;
        }
    }

    fn somebody_releases(&mut self, at: usize) {
        if let Some(who) = self.one(at, |stands| matches!(stands, Stands::Holds { .. })) {
            self.seed.note(|| format!("{at}: {who} releases"));
            self.sides[at].release(who);
        }
    }

    fn somebody_looks_again(&mut self, at: usize) {
        if let Some(who) = self.one(at, |stands| matches!(stands, Stands::Waits { .. })) {
            self.sides[at].nudge(who);
        }
    }

    /// Some thread of the process gets round to what it had to do.
    pub(super) fn a_job_is_done(&mut self, at: usize) -> bool {
        let Some((key, request)) = self.seed.take(&mut self.sides[at].jobs) else {
            return false;
        };
        self.seed.note(|| format!("{at}: the engine has {key} {request:?}"));
        self.sides[at].send(key, request);
        true
    }

    /// The server takes one of the requests that are next on their wires.
    pub(super) fn a_request_arrives(&mut self, at: usize) -> bool {
        let side = &mut self.sides[at];
        let mut ready: Vec<Key> = side
            .wires
            .iter()
            .filter(|(_, wire)| !wire.is_empty())
            .map(|(key, _)| *key)
            .collect();
        let loose = side.loose.len();
        if ready.len() + loose == 0 {
            return false;
        }
        let (key, request) = if self.seed.rng.usize(..ready.len() + loose) < loose {
            self.seed.take(&mut side.loose).unwrap()
        } else {
            let key = self.seed.take(&mut ready).unwrap();
            (key, side.wires.get_mut(&key).unwrap().pop_front().unwrap())
        };
        self.seed.note(|| format!("{at}: the server has {key} {request:?}"));
        self.serve(at, key, request);
        true
    }

    fn serve(&mut self, at: usize, key: Key, request: Request) {
        let mut granted = Vec::new();
        match request {
            Request::Acquire {
                mode,
                attempt,
                flight,
                session,
            } => self.serve_acquire(at, key, mode, attempt, flight, session),
            Request::Abandon { flight } => {
                let side = &mut self.sides[at];
                let polled = side.polled.len();
                side.polled.retain(|wait| (wait.key, wait.flight) != (key, flight));
                let was_polled = side.polled.len() < polled;
                if self.server.withdraw(key, &(at, key, flight), &mut granted) || was_polled {
                    self.answer(at, key, flight, Ok(None));
                }
            }
            Request::Release {
                mode,
                turn,
                session,
                settle,
            } => {
                let held = self.server.release(session.id(), key, mode, &mut granted);
                assert_eq!(held, !session.is_lost(), "the server still has what is given back");
                if settle {
                    self.sides[at].answers.push(Answer::Settled { key, turn });
                }
            }
        }
        self.tell(granted);
    }

    fn serve_acquire(
        &mut self,
        at: usize,
        key: Key,
        mode: Mode,
        attempt: Attempt,
        flight: u64,
        session: Arc<SessionHealth>,
    ) {
        if session.is_lost() {
            return self.answer(at, key, flight, Err(EngineError::connection_lost()));
        }
        if self.losses && self.seed.chance(30) {
            let kind = match attempt {
                Attempt::Once { patient: false } => EngineErrorKind::Unavailable,
                _ if self.seed.rng.bool() => EngineErrorKind::ConnectionLost,
                _ => EngineErrorKind::CapacityExceeded,
            };
            return self.answer(at, key, flight, Err(EngineError::new(kind)));
        }
        let id = session.id();
        if attempt != Attempt::Probe {
            let own = self.server.holders(key).iter().any(|(holder, _)| *holder == id);
            assert!(!own, "{key} is asked for on the session that holds it");
        }
        let granted = match attempt {
            Attempt::Once { .. } => self.server.try_acquire(id, key, mode),
            Attempt::Probe => self.server.would_admit(id, key, mode),
            Attempt::Queue { until, .. } => {
                let granted = self.server.acquire(id, key, mode, (at, key, flight));
                if !granted {
                    self.sides[at].queued.push((key, flight, until));
                    return;
                }
                granted
            }
            Attempt::Poll => {
                return self.sides[at].polled.push(Polled {
                    key,
                    mode,
                    flight,
                    session,
                });
            }
        };
        let waited = matches!(attempt, Attempt::Queue { .. });
        let answer = granted.then(|| self.a_grant(session, waited));
        self.answer(at, key, flight, Ok(answer));
    }

    fn a_grant(&self, session: Arc<SessionHealth>, waited: bool) -> Grant {
        if waited && self.unordered {
            Grant::unordered(session)
        } else {
            Grant::new(session)
        }
    }

    /// The server tells those who queued that they have the key.
    fn tell(&mut self, granted: Vec<Wait>) {
        for (at, key, flight) in granted {
            let grant = self.a_grant(Arc::clone(&self.sides[at].waiter_session), true);
            self.answer(at, key, flight, Ok(Some(grant)));
        }
    }

    fn answer(&mut self, at: usize, key: Key, flight: u64, answer: Result<Option<Grant>, EngineError>) {
        let side = &mut self.sides[at];
        side.queued.retain(|(queued, own, _)| (*queued, *own) != (key, flight));
        side.answers.push(Answer::Acquired { key, flight, answer });
    }

    pub(super) fn an_answer_arrives(&mut self, at: usize) -> bool {
        let Some(answer) = self.seed.take(&mut self.sides[at].answers) else {
            return false;
        };
        self.seed.note(|| format!("{at}: the gate has {answer:?}"));
        self.sides[at].deliver(answer);
        true
    }

    /// A wait that polls asks once more. Says whether it was granted.
    fn a_poll_is_due(&mut self, at: usize) -> bool {
        let waits = self.sides[at].polled.len();
        if waits == 0 {
            return false;
        }
        let wait = self.seed.rng.usize(..waits);
        self.poll(at, wait)
    }

    pub(super) fn poll(&mut self, at: usize, wait: usize) -> bool {
        let wait = &self.sides[at].polled[wait];
        let (key, flight, session) = (wait.key, wait.flight, Arc::clone(&wait.session));
        let granted = self.server.try_acquire(session.id(), key, wait.mode);
        if granted {
            self.sides[at]
                .polled
                .retain(|wait| (wait.key, wait.flight) != (key, flight));
            let grant = self.a_grant(session, false);
            self.answer(at, key, flight, Ok(Some(grant)));
        }
        granted
    }

    /// The engine ends a wait at its limit.
    pub(super) fn a_limit_runs_out(&mut self, at: usize) -> bool {
        let now = self.clock.now();
        let Some((key, flight, _)) = self.sides[at].queued.iter().find(|(.., until)| *until <= now).copied() else {
            return false;
        };
        let mut granted = Vec::new();
        assert!(self.server.withdraw(key, &(at, key, flight), &mut granted));
        self.answer(at, key, flight, Ok(None));
        self.tell(granted);
        true
    }

    /// A session comes in doubt, or out of it.
    fn doubt(&self, at: usize) {
        let session = &self.sides[at].lock_session;
        if session.is_trusted() {
            session.suspend();
        } else {
            session.trust_until(Moment::NEVER);
        }
    }

    fn a_session_ends(&mut self, at: usize) {
        self.sessions += 1;
        let next = Side::session(self.sessions, &self.clock);
        let side = &mut self.sides[at];
        let waiter = self.unordered && self.seed.rng.bool();
        let lost = if waiter {
            std::mem::replace(&mut side.waiter_session, next)
        } else {
            if !self.unordered {
                side.waiter_session = Arc::clone(&next);
            }
            std::mem::replace(&mut side.lock_session, next)
        };
        self.seed.note(|| format!("{at}: session {} ends", lost.id()));
        lost.lose();
        let mut granted = Vec::new();
        let dropped = self.server.end_session(lost.id(), &mut granted);
        self.tell(granted);
        let polled = std::mem::take(&mut self.sides[at].polled);
        let (gone, stay): (Vec<_>, Vec<_>) = polled.into_iter().partition(|wait| wait.session.id() == lost.id());
        self.sides[at].polled = stay;
        let gone = gone.into_iter().map(|wait| (at, wait.key, wait.flight));
        for (at, key, flight) in dropped.into_iter().chain(gone) {
            self.answer(at, key, flight, Err(EngineError::connection_lost()));
        }
        self.sides[at].answers.push(Answer::Lost(lost));
    }
}
