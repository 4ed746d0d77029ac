//! An engine that does nothing by itself: a test reads what it was asked, and answers.

use std::{
    collections::VecDeque,
    sync::{Arc, Mutex},
};

use tokio::sync::oneshot;

use crate::{
    Locks, LocksOptions,
    clock::{Clock, ClockHand, Moment},
    engine::{
        AcquireRequest, AnnounceRequest, Attempt, Engine, EngineError, EngineErrorKind, EngineEvents, FencedRequest,
        Grant, IncumbentRequest, LedgerRequest, ReleaseRequest, SlotsRequest,
    },
    key::Key,
    locks::lock,
    session::SessionHealth,
};

#[derive(Debug)]
pub(crate) struct ScriptedEngine {
    clock: Clock,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    session: Arc<SessionHealth>,
    ordered: bool,
    acquires: VecDeque<AcquireRequest>,
    abandoned: VecDeque<(Key, u64)>,
    releases: VecDeque<ReleaseRequest>,
    slots: VecDeque<SlotsRequest>,
    announces: VecDeque<AnnounceRequest>,
    closes: Vec<oneshot::Sender<()>>,
    outage: Option<EngineErrorKind>,
    events: Option<EngineEvents>,
}

impl ScriptedEngine {
    /// An engine and the locks in front of it, on a clock that is moved by hand.
    pub(crate) fn new() -> (Arc<Self>, Locks, ClockHand) {
        let (clock, hand) = Clock::manual();
        let state = State {
            session: Arc::new(SessionHealth::new(1, clock.clone(), Moment::NEVER)),
            ordered: true,
            acquires: VecDeque::new(),
            abandoned: VecDeque::new(),
            releases: VecDeque::new(),
            slots: VecDeque::new(),
            announces: VecDeque::new(),
            closes: Vec::new(),
            outage: None,
            events: None,
        };
        let state = Mutex::new(state);
        let engine = Arc::new(Self { clock, state });
        let locks = Locks::new(Arc::clone(&engine) as Arc<dyn Engine>, LocksOptions::default());
        (engine, locks, hand)
    }

    /// From now on, later requests do not go through the session of a grant.
    pub(crate) fn grant_unordered(&self) {
        lock(&self.state).ordered = false;
    }

    pub(crate) fn a_grant(&self) -> Grant {
        let state = lock(&self.state);
        let session = Arc::clone(&state.session);
        if state.ordered {
            Grant::new(session)
        } else {
            Grant::unordered(session)
        }
    }

    pub(crate) fn session(&self) -> Arc<SessionHealth> {
        Arc::clone(&lock(&self.state).session)
    }

    /// The next request for a key, which must be such an attempt.
    pub(crate) fn asked(&self, attempt: Attempt) -> AcquireRequest {
        let request = lock(&self.state).acquires.pop_front().expect("a request");
        assert_eq!(request.attempt, attempt);
        request
    }

    pub(crate) fn asked_at_all(&self) -> AcquireRequest {
        lock(&self.state).acquires.pop_front().expect("a request")
    }

    pub(crate) fn abandoned(&self) -> (Key, u64) {
        lock(&self.state).abandoned.pop_front().expect("something abandoned")
    }

    pub(crate) fn released(&self) -> ReleaseRequest {
        lock(&self.state).releases.pop_front().expect("a release")
    }

    pub(crate) fn asked_for_slots(&self) -> SlotsRequest {
        lock(&self.state).slots.pop_front().expect("a request for slots")
    }

    /// The next announcement, if there is one.
    pub(crate) fn announced(&self) -> Option<AnnounceRequest> {
        lock(&self.state).announces.pop_front()
    }

    pub(crate) fn closed(&self) -> oneshot::Sender<()> {
        lock(&self.state).closes.pop().expect("a request to close")
    }

    pub(crate) fn has_nothing_to_do(&self) -> bool {
        let state = lock(&self.state);
        state.acquires.is_empty()
            && state.abandoned.is_empty()
            && state.releases.is_empty()
            && state.slots.is_empty()
            && state.closes.is_empty()
    }

    pub(crate) fn grant(&self, request: AcquireRequest) {
        request.reply.send(Ok(Some(self.a_grant())));
    }

    pub(crate) fn break_down(&self, kind: EngineErrorKind) {
        lock(&self.state).outage = Some(kind);
    }

    pub(crate) fn fall_silent(&self, kind: EngineErrorKind) {
        self.break_down(kind);
        self.events().server_silent(&EngineError::new(kind));
    }

    pub(crate) fn lose_session(&self) {
        let lost = {
            let mut state = lock(&self.state);
            let next = SessionHealth::new(state.session.id() + 1, self.clock.clone(), Moment::NEVER);
            std::mem::replace(&mut state.session, Arc::new(next))
        };
        lost.lose();
        self.events().session_lost(&lost);
    }

    fn events(&self) -> EngineEvents {
        lock(&self.state).events.clone().expect("locks attach their engine")
    }
}

impl Engine for ScriptedEngine {
    fn attach(&self, events: EngineEvents) {
        lock(&self.state).events = Some(events);
    }

    fn acquire(&self, request: AcquireRequest) {
        lock(&self.state).acquires.push_back(request);
    }

    fn abandon(&self, key: Key, flight: u64) {
        lock(&self.state).abandoned.push_back((key, flight));
    }

    fn release(&self, request: ReleaseRequest) {
        lock(&self.state).releases.push_back(request);
    }

    fn take_slots(&self, request: SlotsRequest) {
        lock(&self.state).slots.push_back(request);
    }

    /// Answers that the connection was lost: nobody asks for these here.
    fn acquire_fenced(&self, _: FencedRequest) {}

    fn incumbent(&self, _: IncumbentRequest) {}

    fn ledger(&self, _: LedgerRequest) {}

    fn announce(&self, request: AnnounceRequest) {
        lock(&self.state).announces.push_back(request);
    }

    fn close(&self, done: oneshot::Sender<()>) {
        lock(&self.state).closes.push(done);
    }

    fn outage(&self) -> Option<EngineError> {
        lock(&self.state).outage.map(EngineError::new)
    }

    fn clock(&self) -> Clock {
        self.clock.clone()
    }
}
