//! What collects for a lock session while one batch is on the wire.

use std::{
    collections::VecDeque,
    mem,
    sync::Mutex,
    task::{Context, Poll, Waker},
};

use latchwork_core::{
    Clock, Key, Mode, Moment,
    engine::{
        AcquireRequest, AnnounceRequest, EngineError, EngineErrorKind, Grant, IncumbentRequest, ReleaseRequest,
        SlotsRequest,
    },
};

use crate::{sync::lock, wait::Wait};

/// A request for one key.
#[derive(Debug)]
pub(crate) enum Ask {
    /// Answered after one attempt.
    Once(AcquireRequest),
    /// Asked again until it is granted or abandoned.
    Wait(Wait),
}

impl Ask {
    pub(crate) const fn request(&self) -> &AcquireRequest {
        match self {
            Self::Once(request) => request,
            Self::Wait(wait) => wait.request(),
        }
    }

    pub(crate) const fn key(&self) -> Key {
        self.request().key
    }

    pub(crate) const fn mode(&self) -> Mode {
        self.request().mode
    }

    pub(crate) fn answer(self, answer: Result<Option<Grant>, EngineError>) {
        match self {
            Self::Once(request) => request.reply.send(answer),
            Self::Wait(wait) => wait.answer(answer),
        }
    }
}

/// A question that is not about locks of ours.
#[derive(Debug)]
pub(crate) enum Inquiry {
    /// Who else uses a pool of slots.
    Announce(AnnounceRequest),
    /// Who holds a key.
    Incumbent(IncumbentRequest),
}

impl Inquiry {
    pub(crate) fn fail(self, error: &EngineError) {
        match self {
            Self::Announce(request) => request.reply.send(Err(error.clone())),
            Self::Incumbent(request) => request.reply.send(Err(error.clone())),
        }
    }
}

/// Requests that go into the next batch.
#[derive(Debug, Default)]
pub(crate) struct Work {
    pub(crate) releases: Vec<ReleaseRequest>,
    pub(crate) asks: Vec<Ask>,
    pub(crate) probes: Vec<AcquireRequest>,
    pub(crate) slots: Vec<SlotsRequest>,
    pub(crate) inquiries: Vec<Inquiry>,
}

impl Work {
    pub(crate) const fn is_empty(&self) -> bool {
        self.releases.is_empty()
            && self.asks.is_empty()
            && self.probes.is_empty()
            && self.slots.is_empty()
            && self.inquiries.is_empty()
    }

    /// Takes all, and leaves room for as much again.
    fn take(&mut self) -> Self {
        let next = Self {
            releases: Vec::with_capacity(self.releases.len()),
            asks: Vec::with_capacity(self.asks.len()),
            ..Self::default()
        };
        mem::replace(self, next)
    }

    pub(crate) fn append(&mut self, mut other: Self) {
        self.releases.append(&mut other.releases);
        self.asks.append(&mut other.asks);
        self.probes.append(&mut other.probes);
        self.slots.append(&mut other.slots);
        self.inquiries.append(&mut other.inquiries);
    }

    /// How many of the requests were counted as pending: those that are answered after one attempt.
    pub(crate) fn tries(&self) -> usize {
        self.asks.iter().filter(|ask| matches!(ask, Ask::Once(_))).count()
    }

    /// Answers everything with an error.
    pub(crate) fn fail(self, error: &EngineError) {
        for release in self.releases {
            release.reply.send(Err(error.clone()));
        }
        for ask in self.asks {
            ask.answer(Err(error.clone()));
        }
        for probe in self.probes {
            probe.reply.send(Err(error.clone()));
        }
        for slots in self.slots {
            slots.reply.send(Err(error.clone()));
        }
        for inquiry in self.inquiries {
            inquiry.fail(error);
        }
    }
}

/// A request that is asked at some later moment.
#[derive(Debug)]
pub(crate) enum Parked {
    Wait(Wait),
    Slots(SlotsRequest),
}

#[derive(Debug, Default)]
struct State {
    work: Work,
    parked: Vec<(Moment, Parked)>,
    /// The keys that each batch on the wire releases.
    returning: VecDeque<Vec<Key>>,
    closing: bool,
    /// Nobody takes anything out any more.
    ended: bool,
    waker: Option<Waker>,
}

impl State {
    /// Takes what is due, and notes which keys are on their way back.
    fn take_due(&mut self, now: Moment) -> Work {
        let mut work = self.work.take();
        for (_, parked) in self.parked.extract_if(.., |(due, _)| *due <= now) {
            match parked {
                Parked::Wait(wait) => work.asks.push(Ask::Wait(wait)),
                Parked::Slots(request) => work.slots.push(request),
            }
        }
        if !work.is_empty() {
            self.returning.push_back(keys(&work.releases));
        }
        work
    }

    fn take_parked(&mut self, work: &mut Work) {
        for (_, parked) in self.parked.drain(..) {
            match parked {
                Parked::Wait(wait) => work.asks.push(Ask::Wait(wait)),
                Parked::Slots(request) => work.slots.push(request),
            }
        }
    }
}

/// The way in for one lock session.
#[derive(Debug, Default)]
pub(crate) struct Inbox(Mutex<State>);

/// Why the owner of an inbox woke.
#[derive(Debug)]
pub(crate) enum Wake {
    Work(Work),
    Close,
}

impl Inbox {
    /// Adds work and wakes the owner.
    pub(crate) fn push(&self, add: impl FnOnce(&mut Work)) {
        let mut late = Work::default();
        self.change(|state| add(if state.ended { &mut late } else { &mut state.work }));
        if !late.is_empty() {
            late.fail(&EngineError::new(EngineErrorKind::Closed));
        }
    }

    /// Puts a request aside until a moment.
    pub(crate) fn park(&self, due: Moment, parked: Parked) {
        let (mut abandoned, mut late) = (None, None);
        self.change(|state| match parked {
            // Read under the mutex that `end_abandoned` takes, so that one of the two sees it.
            Parked::Wait(wait) if wait.is_abandoned() => abandoned = Some(wait),
            parked if state.ended => late = Some(parked),
            parked => state.parked.push((due, parked)),
        });
        let closed = || EngineError::new(EngineErrorKind::Closed);
        match late {
            Some(Parked::Wait(wait)) => wait.answer(Err(closed())),
            Some(Parked::Slots(request)) => request.reply.send(Err(closed())),
            None => {}
        }
        if let Some(wait) = abandoned {
            wait.answer(Ok(None));
        }
    }

    /// Answers whatever comes from now on that the engine is closed: nobody looks here any more.
    pub(crate) fn end(&self) {
        self.change(|state| state.ended = true);
    }

    /// Answers the parked waits that were abandoned.
    pub(crate) fn end_abandoned(&self) {
        let is_abandoned = |entry: &mut (Moment, Parked)| matches!(&entry.1, Parked::Wait(wait) if wait.is_abandoned());
        let ended: Vec<_> = lock(&self.0).parked.extract_if(.., is_abandoned).collect();
        for (_, parked) in ended {
            if let Parked::Wait(wait) = parked {
                wait.answer(Ok(None));
            }
        }
    }

    /// Takes out the parked wait that has been here longest and may stand in the server's queue.
    pub(crate) fn unpark_oldest(&self) -> Option<Wait> {
        let mut state = lock(&self.0);
        let at = state
            .parked
            .iter()
            .position(|(_, parked)| matches!(parked, Parked::Wait(wait) if wait.may_queue()))?;
        match state.parked.remove(at).1 {
            Parked::Wait(wait) => Some(wait),
            Parked::Slots(_) => None,
        }
    }

    pub(crate) fn close(&self) {
        self.change(|state| state.closing = true);
    }

    pub(crate) fn is_closing(&self) -> bool {
        lock(&self.0).closing
    }

    /// Resolves when the inbox is closed.
    pub(crate) fn poll_closing(&self, context: &Context<'_>) -> Poll<()> {
        let mut state = lock(&self.0);
        if state.closing {
            return Poll::Ready(());
        }
        state.waker = Some(context.waker().clone());
        Poll::Pending
    }

    /// Whether nothing is here.
    pub(crate) fn is_empty(&self) -> bool {
        let state = lock(&self.0);
        state.work.is_empty() && state.parked.is_empty()
    }

    /// Takes everything that is due now, if anything is.
    pub(crate) fn take_due(&self, clock: &Clock) -> Option<Work> {
        let mut state = lock(&self.0);
        let now = if state.parked.is_empty() {
            Moment::default()
        } else {
            clock.now()
        };
        let work = state.take_due(now);
        (!work.is_empty()).then_some(work)
    }

    /// Takes everything that is due at `now`; else says when the next parked request is due.
    pub(crate) fn poll_work(&self, now: Moment, context: &Context<'_>) -> (Poll<Wake>, Moment) {
        let mut state = lock(&self.0);
        let work = state.take_due(now);
        if !work.is_empty() {
            return (Poll::Ready(Wake::Work(work)), now);
        }
        if state.closing {
            return (Poll::Ready(Wake::Close), now);
        }
        match &state.waker {
            Some(waker) if waker.will_wake(context.waker()) => {}
            _ => state.waker = Some(context.waker().clone()),
        }
        (
            Poll::Pending,
            state.parked.iter().map(|(due, _)| *due).min().unwrap_or(Moment::NEVER),
        )
    }

    /// Takes out what has been sent here, when an attempt to connect has failed: those who are patient ask anew if they
    /// still want it. With `all`, also what is put aside.
    pub(crate) fn take_failed(&self, all: bool) -> Work {
        let mut state = lock(&self.0);
        let mut failed = Work {
            releases: mem::take(&mut state.work.releases),
            ..Work::default()
        };
        failed.inquiries = mem::take(&mut state.work.inquiries);
        failed.probes = mem::take(&mut state.work.probes);
        failed.slots = mem::take(&mut state.work.slots);
        failed.asks = mem::take(&mut state.work.asks);
        if all {
            state.take_parked(&mut failed);
        }
        failed
    }

    /// Takes out the releases.
    pub(crate) fn take_releases(&self) -> Vec<ReleaseRequest> {
        let mut state = lock(&self.0);
        let releases = mem::take(&mut state.work.releases);
        if let Some(returning) = state.returning.back_mut() {
            returning.extend(keys(&releases));
        }
        releases
    }

    /// Notes that the oldest batch on the wire has been answered.
    pub(crate) fn batch_arrived(&self) {
        lock(&self.0).returning.pop_front();
    }

    /// Notes that nothing is on the wire, because there is none.
    pub(crate) fn wire_ended(&self) {
        lock(&self.0).returning.clear();
    }

    /// Whether any release is here or on the wire.
    pub(crate) fn is_releasing(&self) -> bool {
        let state = lock(&self.0);
        !state.work.releases.is_empty() || state.returning.iter().any(|keys| !keys.is_empty())
    }

    /// Whether a release of the key is here or on the wire: who asks for it now must come behind.
    pub(crate) fn is_returning(&self, key: Key) -> bool {
        let state = lock(&self.0);
        state.work.releases.iter().any(|release| release.key == key)
            || state.returning.iter().any(|keys| keys.contains(&key))
    }

    /// Takes out everything, due or not.
    pub(crate) fn take_all(&self) -> Work {
        let mut state = lock(&self.0);
        let mut work = mem::take(&mut state.work);
        state.take_parked(&mut work);
        work
    }

    fn change(&self, change: impl FnOnce(&mut State)) {
        let mut state = lock(&self.0);
        change(&mut state);
        let waker = state.waker.take();
        drop(state);
        if let Some(waker) = waker {
            waker.wake();
        }
    }
}

fn keys(releases: &[ReleaseRequest]) -> Vec<Key> {
    releases.iter().map(|release| release.key).collect()
}

/// Whether a request outlives an outage.
pub(crate) const fn is_patient(request: &AcquireRequest) -> bool {
    !matches!(
        request.attempt,
        latchwork_core::engine::Attempt::Once { patient: false } | latchwork_core::engine::Attempt::Probe
    )
}
