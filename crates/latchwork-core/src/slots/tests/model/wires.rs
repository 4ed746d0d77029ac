//! What is on its way between the pools and the server.

use std::sync::Arc;

use super::{Answer, Request, World, key};
use crate::{
    engine::{EngineError, EngineErrorKind, Grant},
    mode::Mode,
    session::SessionHealth,
};

impl World {
    /// Some thread of the process gets round to what it had to do.
    pub(super) fn a_job_is_done(&mut self, at: usize) -> bool {
        let Some(request) = self.seed.take(&mut self.sides[at].jobs) else {
            return false;
        };
        self.seed.note(|| format!("{at}: the engine has {request:?}"));
        let settled = match &request {
            Request::Release {
                slot, settle: false, ..
            } => Some(*slot),
            _ => None,
        };
        self.sides[at].requests.push(request);
        if let Some(slot) = settled {
            self.change(at, |table, _, actions| table.settled(slot, actions));
        }
        true
    }

    pub(super) fn a_request_arrives(&mut self, at: usize) -> bool {
        let Some(request) = self.seed.take(&mut self.sides[at].requests) else {
            return false;
        };
        self.seed.note(|| format!("{at}: the server has {request:?}"));
        match request {
            Request::Ask {
                flight,
                later: true,
                session,
            } => self.sides[at].later.push((flight, session)),
            Request::Ask { flight, session, .. } => {
                self.the_given_back_goes_first(at);
                self.ask(at, flight, &session);
            }
            Request::Release { slot, session, settle } => self.give_back(at, slot, &session, settle),
        }
        true
    }

    /// An engine that asks what to ask for sends all ordered releases that it has before it.
    fn the_given_back_goes_first(&mut self, at: usize) {
        let requests = std::mem::take(&mut self.sides[at].requests);
        for request in requests {
            match request {
                Request::Release {
                    slot,
                    session,
                    settle: false,
                } => self.give_back(at, slot, &session, false),
                request => self.sides[at].requests.push(request),
            }
        }
    }

    fn give_back(&mut self, at: usize, slot: u32, session: &SessionHealth, settle: bool) {
        let held = self
            .server
            .release(session.id(), key(slot), Mode::Exclusive, &mut Vec::new());
        assert_eq!(held, !session.is_lost(), "the server still has what is given back");
        if settle {
            self.sides[at].answers.push(Answer::Settled { slot });
        }
    }

    pub(super) fn an_interval_is_over(&mut self, at: usize) -> bool {
        let Some((flight, session)) = self.seed.take(&mut self.sides[at].later) else {
            return false;
        };
        let later = false;
        self.sides[at].requests.push(Request::Ask { flight, later, session });
        true
    }

    fn ask(&mut self, at: usize, flight: u64, session: &Arc<SessionHealth>) {
        let failed = self.losses && self.seed.chance(20);
        if session.is_lost() || failed {
            let answer = Err(EngineError::new(match self.seed.rng.u32(..3) {
                0 if failed => EngineErrorKind::CapacityExceeded,
                _ => EngineErrorKind::ConnectionLost,
            }));
            return self.sides[at].answers.push(Answer::Slots { flight, answer });
        }
        let rotation = self.seed.rng.usize(..);
        let side = &mut self.sides[at];
        let (slots, want) = side.table.candidates(flight, rotation);
        for slot in &slots {
            assert!(
                !side.lists.values().flatten().any(|listed| listed == slot),
                "{slot} is in two questions"
            );
            assert!(
                !side
                    .granted
                    .iter()
                    .any(|((own, _), session)| own == slot && !session.is_lost()),
                "{slot} is asked for while it is held"
            );
        }
        let mut granted = Vec::new();
        for (candidate, slot) in slots.iter().enumerate() {
            if granted.len() < want && self.server.try_acquire(session.id(), key(*slot), Mode::Exclusive) {
                let session = Arc::clone(session);
                let grant = if self.ordered {
                    Grant::new(session)
                } else {
                    Grant::unordered(session)
                };
                granted.push((candidate, grant));
            }
        }
        side.lists.insert(flight, slots);
        side.answers.push(Answer::Slots {
            flight,
            answer: Ok(granted),
        });
    }

    pub(super) fn an_answer_arrives(&mut self, at: usize) -> bool {
        let side = &mut self.sides[at];
        let Some(answer) = self.seed.take(&mut side.answers) else {
            return false;
        };
        self.seed.note(|| format!("{at}: the pool has {answer:?}"));
        match answer {
            Answer::Slots { flight, answer } => {
                let list = side.lists.remove(&flight).unwrap_or_default();
                for (candidate, grant) in answer.iter().flatten() {
                    if !grant.session().is_lost() {
                        side.granted
                            .insert((list[*candidate], flight), Arc::clone(grant.session()));
                    }
                }
                self.change(at, |table, now, actions| table.answered(flight, answer, now, actions));
            }
            Answer::Settled { slot } => self.change(at, |table, _, actions| table.settled(slot, actions)),
            Answer::Lost(session) => {
                side.granted.retain(|_, own| own.id() != session.id());
                self.change(at, |table, _, actions| table.session_lost(&session, actions));
            }
        }
        true
    }
}
