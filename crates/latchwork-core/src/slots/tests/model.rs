//! Two pools of one name in front of one lock server, driven at random.

mod rest;
mod wires;

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use crate::{
    clock::{Clock, ClockHand, Moment},
    engine::{EngineError, Grant},
    gate::HandOverBound,
    key::Key,
    session::SessionHealth,
    slots::table::{Action, Table},
    testing::{Seed, Server},
};

const SLOTS: u32 = 3;

#[derive(Debug)]
enum Stands {
    Waits {
        ticket: u64,
    },
    Vanished,
    Holds {
        slot: u32,
        turn: u64,
        session: Arc<SessionHealth>,
    },
}

#[derive(Debug)]
enum Request {
    Ask {
        flight: u64,
        later: bool,
        session: Arc<SessionHealth>,
    },
    Release {
        slot: u32,
        session: Arc<SessionHealth>,
        settle: bool,
    },
}

#[derive(Debug)]
enum Answer {
    Slots {
        flight: u64,
        answer: Result<Vec<(usize, Grant)>, EngineError>,
    },
    Settled {
        slot: u32,
    },
    Lost(Arc<SessionHealth>),
}

struct Side {
    table: Table<u32>,
    people: BTreeMap<u32, (bool, Stands)>,
    session: Arc<SessionHealth>,
    /// What the shell has yet to do: each job is another thread's.
    jobs: Vec<Request>,
    requests: Vec<Request>,
    /// Flights that wait for their poll interval.
    later: Vec<(u64, Arc<SessionHealth>)>,
    answers: Vec<Answer>,
    /// What is on the list of which flight, for as long as that is not answered.
    lists: BTreeMap<u64, Vec<u32>>,
    granted: BTreeMap<(u32, u64), Arc<SessionHealth>>,
    served: usize,
}

struct World {
    seed: Seed,
    clock: Clock,
    hand: ClockHand,
    server: Server<()>,
    sides: [Side; 2],
    sessions: u64,
    losses: bool,
    ordered: bool,
    people: u32,
}

const fn key(slot: u32) -> Key {
    Key::bigint(slot as i64)
}

impl World {
    fn new(seed: u64, losses: bool) -> Self {
        let bound = match seed % 3 {
            0 => HandOverBound::default(),
            1 => HandOverBound::new(2, Duration::MAX),
            _ => HandOverBound::new(0, Duration::ZERO),
        };
        let (clock, hand) = Clock::manual();
        let sides = [1, 2].map(|id| Side {
            table: Table::new(SLOTS, bound),
            people: BTreeMap::new(),
            session: Arc::new(SessionHealth::new(id, clock.clone(), Moment::NEVER)),
            jobs: Vec::new(),
            requests: Vec::new(),
            later: Vec::new(),
            answers: Vec::new(),
            lists: BTreeMap::new(),
            granted: BTreeMap::new(),
            served: 0,
        });
        Self {
            seed: Seed::new(seed),
            clock,
            hand,
            server: Server::new(),
            sides,
            sessions: 2,
            losses,
            ordered: seed.is_multiple_of(2),
            people: 0,
        }
    }

    fn step(&mut self) {
        let at = self.seed.rng.usize(..2);
        match self.seed.rng.u32(..100) {
            0..18 => {
                let tries = self.seed.rng.bool();
                self.comes(at, tries);
            }
            18..22 => self.somebody_leaves(at),
            22..24 => self.somebody_vanishes(at),
            24..36 => drop(self.somebody_releases(at)),
            36..40 => self.hand.advance(Duration::from_millis(self.seed.rng.u64(..20))),
            40..50 => drop(self.a_job_is_done(at)),
            50..62 => drop(self.a_request_arrives(at)),
            62..68 => drop(self.an_interval_is_over(at)),
            68..94 => drop(self.an_answer_arrives(at)),
            94..97 if self.losses => self.doubt(at),
            97..99 if self.losses && self.seed.chance(3) => self.the_session_ends(at),
            _ => {}
        }
    }

    fn comes(&mut self, at: usize, tries: bool) -> u32 {
        self.people += 1;
        let who = self.people;
        let mut actions = Vec::new();
        let side = &mut self.sides[at];
        match side.table.enter(tries, || who, &mut actions) {
            Some(ticket) => drop(side.people.insert(who, (tries, Stands::Waits { ticket }))),
            None => assert!(tries && actions.is_empty(), "only a try is answered at once"),
        }
        self.seed.note(|| format!("{at}: {who} comes, tries: {tries}"));
        self.carry_out(at, actions);
        who
    }

    fn one(&mut self, at: usize, which: impl Fn(&Stands) -> bool) -> Option<u32> {
        let people = self.sides[at].people.iter();
        let mut those: Vec<u32> = people.filter(|(_, (_, s))| which(s)).map(|(who, _)| *who).collect();
        self.seed.take(&mut those)
    }

    fn somebody_leaves(&mut self, at: usize) {
        let Some(who) = self.one(at, |stands| matches!(stands, Stands::Waits { .. })) else {
            return;
        };
        self.seed.note(|| format!("{at}: {who} leaves"));
        let side = &mut self.sides[at];
        if let Some((_, Stands::Waits { ticket })) = side.people.remove(&who) {
            side.table.leave(ticket);
        }
    }

    fn somebody_vanishes(&mut self, at: usize) {
        let Some(who) = self.one(at, |stands| matches!(stands, Stands::Waits { .. })) else {
            return;
        };
        self.seed.note(|| format!("{at}: {who} vanishes"));
        self.sides[at].people.get_mut(&who).unwrap().1 = Stands::Vanished;
    }

    fn somebody_releases(&mut self, at: usize) -> bool {
        let Some(who) = self.one(at, |stands| matches!(stands, Stands::Holds { .. })) else {
            return false;
        };
        self.seed.note(|| format!("{at}: {who} releases"));
        let Some((_, Stands::Holds { slot, turn, .. })) = self.sides[at].people.remove(&who) else {
            unreachable!()
        };
        self.change(at, |table, now, actions| {
            table.release(slot, turn, now, actions);
        });
        true
    }

    fn doubt(&self, at: usize) {
        let session = &self.sides[at].session;
        let trusted = session.is_trusted();
        session.trust_until(if trusted { Moment::default() } else { Moment::NEVER });
    }

    fn the_session_ends(&mut self, at: usize) {
        self.sessions += 1;
        let next = SessionHealth::new(self.sessions, self.clock.clone(), Moment::NEVER);
        let lost = std::mem::replace(&mut self.sides[at].session, Arc::new(next));
        self.seed.note(|| format!("{at}: session {} ends", lost.id()));
        lost.lose();
        self.server.end_session(lost.id(), &mut Vec::new());
        self.sides[at].answers.push(Answer::Lost(lost));
    }

    fn change(&mut self, at: usize, change: impl FnOnce(&mut Table<u32>, Moment, &mut Vec<Action<u32>>)) {
        let mut actions = Vec::new();
        change(&mut self.sides[at].table, self.clock.now(), &mut actions);
        self.carry_out(at, actions);
    }

    /// Does what the shell of the pool does.
    fn carry_out(&mut self, at: usize, mut actions: Vec<Action<u32>>) {
        let side = &mut self.sides[at];
        let session = Arc::clone(&side.session);
        let mut next = 0;
        while next < actions.len() {
            let action = std::mem::replace(&mut actions[next], Action::Done);
            next += 1;
            match action {
                Action::Ask { flight, later } => {
                    let session = Arc::clone(&session);
                    side.jobs.push(Request::Ask { flight, later, session });
                }
                Action::Release { slot, grant, settle } => {
                    let at = side
                        .granted
                        .iter()
                        .find(|((granted, _), _)| *granted == slot)
                        .map(|(at, _)| *at);
                    let session = side
                        .granted
                        .remove(&at.expect("what was granted goes back once"))
                        .unwrap();
                    assert_eq!(session.id(), grant.session().id());
                    side.jobs.push(Request::Release { slot, session, settle });
                }
                Action::Give { to, slot, grant, turn } => {
                    let (_, stands) = side.people.get_mut(&to).expect("nobody is served twice");
                    if matches!(stands, Stands::Vanished) {
                        side.people.remove(&to);
                        side.table.release(slot, turn, self.clock.now(), &mut actions);
                    } else {
                        side.served += 1;
                        let session = Arc::clone(grant.session());
                        *stands = Stands::Holds { slot, turn, session };
                    }
                }
                Action::Deny { to } => {
                    let (tries, _) = side.people.remove(&to).expect("nobody is answered twice");
                    assert!(tries, "only tries are denied");
                }
                Action::Fail { to, .. } => drop(side.people.remove(&to).expect("nobody is answered twice")),
                Action::Done => unreachable!("the table does not say what was done"),
            }
        }
    }
}

fn run(seed: u64, losses: bool) {
    let mut world = World::new(seed, losses);
    for step in 0..3_000 {
        world.step();
        world.check();
        if step % 250 == 249 {
            world.come_to_rest();
            world.check();
            world.what_is_free_is_granted();
        }
    }
    world.everybody_goes_home();
}

#[test]
fn two_pools_never_give_more_permits_than_there_are_slots_and_forget_nobody() {
    for seed in Seed::row(12, 3) {
        run(seed, false);
    }
}

#[test]
fn two_pools_never_give_more_permits_than_there_are_slots_and_forget_nobody_while_sessions_end() {
    for seed in Seed::row(12, 3) {
        run(seed, true);
    }
}
