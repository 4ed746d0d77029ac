//! One process: its gate, the people in it, and what is on its wires.

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    sync::Arc,
};

use crate::{
    clock::{Clock, Moment},
    engine::{Attempt, EngineError, Grant},
    gate::{Action, Entered, HandOverBound, Table, Want},
    key::Key,
    mode::Mode,
    session::SessionHealth,
};

/// One who has come.
#[derive(Debug)]
pub(super) struct Person {
    pub(super) key: Key,
    pub(super) mode: Mode,
    pub(super) want: Want,
    pub(super) stands: Stands,
}

#[derive(Debug)]
pub(super) enum Stands {
    Waits {
        ticket: u64,
    },
    /// Has gone without a word; what he is given must go back.
    Vanished,
    Holds {
        turn: u64,
        session: Arc<SessionHealth>,
    },
}

/// A request on its way to the server.
#[derive(Debug)]
pub(super) enum Request {
    Acquire {
        mode: Mode,
        attempt: Attempt,
        flight: u64,
        session: Arc<SessionHealth>,
    },
    Abandon {
        flight: u64,
    },
    Release {
        mode: Mode,
        turn: u64,
        session: Arc<SessionHealth>,
        settle: bool,
    },
}

/// Something on its way back to the gate.
#[derive(Debug)]
pub(super) enum Answer {
    Acquired {
        key: Key,
        flight: u64,
        answer: Result<Option<Grant>, EngineError>,
    },
    Settled {
        key: Key,
        turn: u64,
    },
    Lost(Arc<SessionHealth>),
}

/// A wait that asks again and again.
#[derive(Debug)]
pub(super) struct Polled {
    pub(super) key: Key,
    pub(super) mode: Mode,
    pub(super) flight: u64,
    pub(super) session: Arc<SessionHealth>,
}

#[derive(Debug)]
pub(super) struct Side {
    pub(super) table: Table<u32>,
    pub(super) people: BTreeMap<u32, Person>,
    /// Takes what is asked for once, polled and probed.
    pub(super) lock_session: Arc<SessionHealth>,
    /// Waits in the server's queue; the same as the lock session where all grants are ordered.
    pub(super) waiter_session: Arc<SessionHealth>,
    /// What the shell has yet to do: each job is another thread's.
    pub(super) jobs: Vec<(Key, Request)>,
    /// What keeps its order: the requests for one key.
    pub(super) wires: BTreeMap<Key, VecDeque<Request>>,
    /// What may overtake: releases that are not ordered, and probes.
    pub(super) loose: Vec<(Key, Request)>,
    pub(super) answers: Vec<Answer>,
    pub(super) polled: Vec<Polled>,
    /// Waits in the server's queue, and until when.
    pub(super) queued: Vec<(Key, u64, Moment)>,
    /// The attempt for each key that has not been answered.
    asked: BTreeMap<Key, u64>,
    /// What was granted and not given back.
    granted: BTreeMap<(Key, u64), (Mode, Arc<SessionHealth>)>,
    /// Keys that may not be asked for, since their release has not been sent or, if it is not ordered, answered.
    settling: BTreeMap<Key, u64>,
    /// Waits that were sent, and so can be abandoned.
    sent: BTreeSet<(Key, u64)>,
    pub(super) served: usize,
}

impl Side {
    pub(super) fn new(
        bound: HandOverBound,
        lock_session: Arc<SessionHealth>,
        waiter_session: Arc<SessionHealth>,
    ) -> Self {
        Self {
            table: Table::new(bound, lock_session.clock().clone()),
            people: BTreeMap::new(),
            lock_session,
            waiter_session,
            jobs: Vec::new(),
            wires: BTreeMap::new(),
            loose: Vec::new(),
            answers: Vec::new(),
            polled: Vec::new(),
            queued: Vec::new(),
            asked: BTreeMap::new(),
            granted: BTreeMap::new(),
            settling: BTreeMap::new(),
            sent: BTreeSet::new(),
            served: 0,
        }
    }

    pub(super) fn enter(&mut self, who: u32, key: Key, mode: Mode, want: Want) {
        let mut actions = Vec::new();
        match self.table.enter(key, mode, want, || who, &mut actions) {
            Entered::Queued { ticket } => {
                let stands = Stands::Waits { ticket };
                let person = Person {
                    key,
                    mode,
                    want,
                    stands,
                };
                self.people.insert(who, person);
            }
            Entered::Joined { grant, turn } => {
                self.served += 1;
                let session = Arc::clone(grant.session());
                let stands = Stands::Holds { turn, session };
                let person = Person {
                    key,
                    mode,
                    want,
                    stands,
                };
                self.people.insert(who, person);
            }
            Entered::Denied | Entered::Failed(_) => assert_eq!(want, Want::Try, "only a try is answered at once"),
        }
        self.carry_out(actions);
    }

    pub(super) fn leave(&mut self, who: u32) {
        let Some(Person { key, stands, .. }) = self.people.remove(&who) else {
            return;
        };
        let Stands::Waits { ticket } = stands else {
            panic!("{who} does not wait")
        };
        self.change(|table, actions| table.leave(key, ticket, actions));
    }

    pub(super) fn nudge(&mut self, who: u32) {
        let Person { key, stands, .. } = &self.people[&who];
        let (key, Stands::Waits { ticket }) = (*key, stands) else {
            panic!("{who} does not wait")
        };
        let ticket = *ticket;
        self.change(|table, actions| table.nudge(key, ticket, actions));
    }

    pub(super) fn release(&mut self, who: u32) {
        let Some(Person { key, stands, .. }) = self.people.remove(&who) else {
            return;
        };
        let Stands::Holds { turn, .. } = stands else {
            panic!("{who} holds nothing")
        };
        self.change(|table, actions| {
            table.release(key, turn, actions);
        });
    }

    /// Brings something back to the gate.
    pub(super) fn deliver(&mut self, answer: Answer) {
        match answer {
            Answer::Acquired { key, flight, answer } => {
                if self.asked.get(&key) == Some(&flight) {
                    self.asked.remove(&key);
                    if let Ok(Some(grant)) = &answer
                        && !grant.session().is_lost()
                    {
                        let mode = self.table.entries[&key].phase.flight().expect("the flight asked for").1;
                        self.granted.insert((key, flight), (mode, Arc::clone(grant.session())));
                    }
                }
                self.change(|table, actions| table.answered(key, flight, answer, actions));
            }
            Answer::Settled { key, turn } => self.settles(key, turn),
            Answer::Lost(session) => {
                self.granted.retain(|_, (_, own)| own.id() != session.id());
                self.change(|table, actions| table.session_lost(&session, actions));
            }
        }
    }

    fn change(&mut self, change: impl FnOnce(&mut Table<u32>, &mut Vec<Action<u32>>)) {
        let mut actions = Vec::new();
        change(&mut self.table, &mut actions);
        self.carry_out(actions);
    }

    /// Does what the shell of the gate does.
    fn carry_out(&mut self, mut actions: Vec<Action<u32>>) {
        // Runs must be repeatable, and the gate's map has no order of its own.
        actions.sort_by_key(|action| match action {
            Action::Acquire { key, .. } | Action::Abandon { key, .. } | Action::Release { key, .. } => Some(*key),
            _ => None,
        });
        let mut next = 0;
        while next < actions.len() {
            let action = std::mem::replace(&mut actions[next], Action::Done);
            next += 1;
            match action {
                Action::Acquire {
                    key,
                    mode,
                    attempt,
                    flight,
                } => self.ask(key, mode, attempt, flight),
                Action::Abandon { key, flight } => self.jobs.push((key, Request::Abandon { flight })),
                Action::Release {
                    key,
                    mode,
                    grant,
                    turn,
                    settle,
                } => self.give_back(key, mode, &grant, turn, settle),
                Action::Give { to, key, grant, turn } => {
                    let person = self.people.get_mut(&to).expect("nobody is served twice");
                    assert_eq!(person.key, key);
                    if matches!(person.stands, Stands::Vanished) {
                        self.people.remove(&to);
                        self.table.release(key, turn, &mut actions);
                    } else {
                        self.served += 1;
                        let session = Arc::clone(grant.session());
                        person.stands = Stands::Holds { turn, session };
                    }
                }
                Action::Deny { to } => {
                    let person = self.people.remove(&to).expect("nobody is answered twice");
                    let over = matches!(person.want, Want::Queue { until } if until <= self.lock_session.clock().now());
                    assert!(over || person.want == Want::Try, "{person:?} is not to be denied");
                }
                Action::Fail { to, .. } => drop(self.people.remove(&to).expect("nobody is answered twice")),
                Action::Done => unreachable!("the table does not say what was done"),
            }
        }
    }

    fn ask(&mut self, key: Key, mode: Mode, attempt: Attempt, flight: u64) {
        let queues = matches!(attempt, Attempt::Queue { .. });
        let session = Arc::clone(if queues {
            &self.waiter_session
        } else {
            &self.lock_session
        });
        let request = Request::Acquire {
            mode,
            attempt,
            flight,
            session,
        };
        if attempt != Attempt::Probe {
            assert_eq!(
                self.asked.insert(key, flight),
                None,
                "{key} is asked for once at a time"
            );
            assert!(
                !self.settling.contains_key(&key),
                "{key} is asked for before it was given back"
            );
            let held = |((held, _), (_, session)): (&(Key, u64), &(Mode, Arc<SessionHealth>))| {
                *held == key && !session.is_lost()
            };
            assert!(!self.granted.iter().any(held), "{key} is asked for while it is held");
        }
        self.jobs.push((key, request));
    }

    /// The shell gives something to the engine, and reports to the gate.
    pub(super) fn send(&mut self, key: Key, request: Request) {
        match &request {
            Request::Acquire {
                attempt: Attempt::Probe,
                ..
            } => self.loose.push((key, request)),
            Request::Acquire { attempt, flight, .. } => {
                let (flight, waits) = (*flight, matches!(attempt, Attempt::Queue { .. } | Attempt::Poll));
                self.wire(key).push_back(request);
                if waits {
                    self.sent.insert((key, flight));
                    self.change(|table, actions| table.sent(key, flight, actions));
                }
            }
            Request::Abandon { flight } => {
                assert!(
                    self.sent.contains(&(key, *flight)),
                    "only what was sent can be abandoned"
                );
                self.wire(key).push_back(request);
            }
            Request::Release { settle: true, .. } => self.loose.push((key, request)),
            Request::Release { turn, .. } => {
                let turn = *turn;
                self.wire(key).push_back(request);
                self.settles(key, turn);
            }
        }
    }

    fn settles(&mut self, key: Key, turn: u64) {
        assert_eq!(self.settling.remove(&key), Some(turn), "one release at a time");
        self.change(|table, actions| table.settled(key, turn, actions));
    }

    fn give_back(&mut self, key: Key, mode: Mode, grant: &Grant, turn: u64, settle: bool) {
        let (held, session) = self
            .granted
            .remove(&(key, turn))
            .expect("what was granted goes back once, and nothing else does");
        assert_eq!((held, session.id()), (mode, grant.session().id()));
        let request = Request::Release {
            mode,
            turn,
            session,
            settle,
        };
        self.settling.insert(key, turn);
        self.jobs.push((key, request));
    }

    fn wire(&mut self, key: Key) -> &mut VecDeque<Request> {
        self.wires.entry(key).or_default()
    }

    /// The health that a new session begins with.
    pub(super) fn session(id: u64, clock: &Clock) -> Arc<SessionHealth> {
        Arc::new(SessionHealth::new(id, clock.clone(), Moment::NEVER))
    }
}
