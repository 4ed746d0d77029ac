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

const KEYS: [Key; 3] = [Key::bigint(1), Key::bigint(2), Key::pair(1, 2)];

/// More rounds than any run to a rest can need; beyond, the gates go round in circles.
const TOO_LONG: usize = 20_000;

pub(super) struct World {
    seed: Seed,
    clock: Clock,
    hand: ClockHand,
    server: Server<(usize, u64)>,
    sides: [Side; 2],
    losses: bool,
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
            44..66 => drop(self.a_request_arrives(at)),
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

    fn comes(&mut self, at: usize, key: Key, mode: Mode, want: Want) -> u32 {
        self.people += 1;
        let who = self.people;
        self.seed.note(|| format!("{at}: {who} wants {key} {mode} {want:?}"));
        self.sides[at].enter(who, key, mode, want, self.clock.now());
        who
    }

    fn one(&mut self, at: usize, who: impl Fn(&Stands) -> bool) -> Option<u32> {
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
            self.sides[at].leave(who, self.clock.now());
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
            self.sides[at].release(who, self.clock.now());
        }
    }

    fn somebody_looks_again(&mut self, at: usize) {
        if let Some(who) = self.one(at, |stands| matches!(stands, Stands::Waits { .. })) {
            self.sides[at].nudge(who, self.clock.now());
        }
    }

    /// The server takes one of the requests that are next on their wires.
    fn a_request_arrives(&mut self, at: usize) -> bool {
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
                if self.server.withdraw(key, &(at, flight), &mut granted) || was_polled {
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
        self.tell(key, granted);
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
                let granted = self.server.acquire(id, key, mode, (at, flight));
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
    fn tell(&mut self, key: Key, granted: Vec<(usize, u64)>) {
        for (at, flight) in granted {
            let grant = self.a_grant(Arc::clone(&self.sides[at].waiter_session), true);
            self.answer(at, key, flight, Ok(Some(grant)));
        }
    }

    fn answer(&mut self, at: usize, key: Key, flight: u64, answer: Result<Option<Grant>, EngineError>) {
        let side = &mut self.sides[at];
        side.queued.retain(|(queued, own, _)| (*queued, *own) != (key, flight));
        side.answers.push(Answer::Acquired { key, flight, answer });
    }

    fn an_answer_arrives(&mut self, at: usize) -> bool {
        let Some(answer) = self.seed.take(&mut self.sides[at].answers) else {
            return false;
        };
        self.seed.note(|| format!("{at}: the gate has {answer:?}"));
        self.sides[at].deliver(answer, self.clock.now());
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

    fn poll(&mut self, at: usize, wait: usize) -> bool {
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
    fn a_limit_runs_out(&mut self, at: usize) -> bool {
        let now = self.clock.now();
        let Some((key, flight, _)) = self.sides[at].queued.iter().find(|(.., until)| *until <= now).copied() else {
            return false;
        };
        let mut granted = Vec::new();
        assert!(self.server.withdraw(key, &(at, flight), &mut granted));
        self.answer(at, key, flight, Ok(None));
        self.tell(key, granted);
        true
    }

    /// A session comes in doubt, or out of it.
    fn doubt(&mut self, at: usize) {
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
        let mut dropped = self.server.end_session(lost.id(), &mut granted);
        // What was granted in this moment to a session that lives is told; each grant is for one key.
        let keys: Vec<Key> = self
            .sides
            .iter()
            .flat_map(|side| side.queued.iter().map(|q| q.0))
            .collect();
        for (to, flight) in granted {
            let queued = &self.sides[to].queued;
            let key = queued
                .iter()
                .find(|(key, own, _)| *own == flight && keys.contains(key))
                .unwrap()
                .0;
            self.tell(key, vec![(to, flight)]);
        }
        let polled = std::mem::take(&mut self.sides[at].polled);
        let (gone, stay): (Vec<_>, Vec<_>) = polled.into_iter().partition(|wait| wait.session.id() == lost.id());
        self.sides[at].polled = stay;
        let queued = &self.sides[at].queued;
        let mut failed: Vec<(Key, u64)> = dropped
            .drain(..)
            .map(|(_, flight)| {
                queued
                    .iter()
                    .find(|(_, own, _)| *own == flight)
                    .map(|q| (q.0, q.1))
                    .unwrap()
            })
            .collect();
        failed.extend(gone.into_iter().map(|wait| (wait.key, wait.flight)));
        for (key, flight) in failed {
            self.answer(at, key, flight, Err(EngineError::connection_lost()));
        }
        self.sides[at].answers.push(Answer::Lost(lost));
    }

    /// What must be true at any moment.
    pub(super) fn check(&self) {
        for key in KEYS {
            let mut believed = Vec::new();
            for side in &self.sides {
                for person in side.people.values().filter(|person| person.key == key) {
                    let Stands::Holds { session, .. } = &person.stands else {
                        continue;
                    };
                    if session.is_lost() {
                        continue;
                    }
                    assert!(
                        self.server.is_held(session.id(), key, person.mode),
                        "{person:?} rests on nothing"
                    );
                    if session.is_trusted() {
                        believed.push(person.mode);
                    }
                }
            }
            let alone = believed.len() <= 1 || believed.iter().all(|mode| *mode == Mode::Shared);
            assert!(alone, "{key} is held {believed:?}");
        }
    }

    /// Lets everything happen that needs nobody to do anything.
    pub(super) fn come_to_rest(&mut self) {
        for side in &self.sides {
            side.lock_session.trust_until(Moment::NEVER);
        }
        let losses = std::mem::replace(&mut self.losses, false);
        for round in 0.. {
            assert!(round < TOO_LONG, "the gates go round in circles");
            if self.something_moves() {
                continue;
            }
            // Nothing is on its way: those who wait look once more, and if that moves nothing either, it is quiet.
            for at in 0..2 {
                let those: Vec<u32> = self.sides[at].people.keys().copied().collect();
                for who in those {
                    if matches!(self.sides[at].people[&who].stands, Stands::Waits { .. }) {
                        self.sides[at].nudge(who, self.clock.now());
                    }
                }
            }
            let asks = self.sides.iter().any(|side| !side.loose.is_empty());
            if !asks || !self.probes_move() {
                break;
            }
        }
        self.losses = losses;
    }

    fn something_moves(&mut self) -> bool {
        (0..2).any(|at| {
            self.a_request_arrives(at)
                || self.an_answer_arrives(at)
                || self.a_limit_runs_out(at)
                || (0..self.sides[at].polled.len()).any(|wait| self.poll(at, wait))
        })
    }

    /// Answers the questions of those who look again. Says whether that let anybody in.
    fn probes_move(&mut self) -> bool {
        let served: usize = self.sides.iter().map(|side| side.served).sum();
        while self.something_moves() {}
        served < self.sides.iter().map(|side| side.served).sum()
    }

    /// At rest, whoever is first in a queue has something in his way.
    pub(super) fn nobody_waits_for_nothing(&self) {
        for (at, key) in (0..2).flat_map(|at| KEYS.map(|key| (at, key))) {
            let Some(entry) = self.sides[at].table.entries.get(&key) else {
                continue;
            };
            let Some(head) = entry.waiters.front() else { continue };
            let held = self.server.holders(key);
            let in_the_way = held.iter().any(|(_, mode)| !mode.is_compatible_with(head.mode));
            let elsewhere = self.sides[1 - at]
                .table
                .entries
                .get(&key)
                .is_some_and(|entry| !entry.waiters.is_empty());
            assert!(in_the_way || elsewhere, "{at}: {head:?} waits for nothing: {entry:?}");
        }
    }

    /// At rest, a try for what is free is granted.
    pub(super) fn what_is_free_is_granted(&mut self) {
        for key in KEYS {
            let wanted = |side: &Side| {
                side.table
                    .entries
                    .get(&key)
                    .is_some_and(|entry| !entry.waiters.is_empty())
            };
            if self.sides.iter().any(wanted) {
                continue;
            }
            let mode = match self.server.holders(key) {
                [] if self.seed.rng.bool() => Mode::Exclusive,
                held if held.iter().any(|(_, mode)| *mode == Mode::Exclusive) => continue,
                _ => Mode::Shared,
            };
            let at = self.seed.rng.usize(..2);
            let losses = std::mem::replace(&mut self.losses, false);
            let who = self.comes(at, key, mode, Want::Try);
            while self.something_moves() {}
            let person = self.sides[at].people.get(&who).map(|person| &person.stands);
            assert!(
                matches!(person, Some(Stands::Holds { .. })),
                "{key} is free: {person:?}"
            );
            self.losses = losses;
        }
    }

    /// Nobody comes any more, and everybody releases what he has: then nothing is left.
    pub(super) fn everybody_goes_home(&mut self) {
        self.losses = false;
        for round in 0.. {
            assert!(round < TOO_LONG, "the gates go round in circles");
            self.come_to_rest();
            self.check();
            let holds = |stands: &Stands| matches!(stands, Stands::Holds { .. });
            let Some((at, who)) = (0..2).find_map(|at| self.one(at, holds).map(|who| (at, who))) else {
                break;
            };
            self.seed.note(|| format!("{at}: {who} goes home"));
            self.sides[at].release(who, self.clock.now());
        }
        for side in &self.sides {
            assert!(side.people.is_empty(), "forgotten: {:?}", side.people);
            assert_eq!(side.table.len(), 0, "left behind: {:?}", side.table);
            assert!(side.served > 0, "a run in which nobody was served shows nothing");
        }
        assert!(self.server.is_empty(), "left behind: {:?}", self.server);
    }
}
