//! One visit to the gate or to a pool of slots: what all acquiring futures share.

use std::{
    future::Future,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
    time::Duration,
};

use tokio::{
    runtime::Handle,
    sync::oneshot,
    time::{Instant, Sleep, sleep},
};
use tracing::{Span, debug_span, field};

use crate::{
    claim::Claim,
    clock::Moment,
    engine::EngineError,
    error::AcquireError,
    gate::Want,
    key::Key,
    locks::{Inner, ShardHandle},
    mode::Mode,
    slots::Pool,
};

/// The answer to one who waits, on its way.
pub(crate) type Answer = oneshot::Sender<Result<Option<Claim>, EngineError>>;

/// What one finds on entering.
pub(crate) enum Entry {
    Answered(Result<Option<Claim>, EngineError>),
    Waits {
        ticket: u64,
        answer: oneshot::Receiver<Result<Option<Claim>, EngineError>>,
    },
}

/// Where one enters.
#[derive(Debug)]
pub(crate) enum Door {
    Gate {
        gate: Arc<ShardHandle>,
        key: Key,
        mode: Mode,
    },
    Pool(Arc<Pool>),
}

impl Door {
    fn gate(&self) -> &Inner {
        match self {
            Self::Gate { gate, .. } => gate,
            Self::Pool(pool) => pool.gate(),
        }
    }

    fn key(&self) -> Key {
        match self {
            Self::Gate { key, .. } => *key,
            Self::Pool(pool) => pool.key(),
        }
    }

    fn enter(&self, want: Want) -> Entry {
        match self {
            Self::Gate { gate, key, mode } => gate.enter(*key, *mode, want),
            Self::Pool(pool) => pool.enter(want),
        }
    }

    fn nudge(&self, ticket: u64) {
        match self {
            Self::Gate { gate, key, .. } => gate.nudge(*key, ticket),
            Self::Pool(_) => {}
        }
    }

    fn leave(&self, ticket: u64) {
        match self {
            Self::Gate { gate, key, .. } => gate.leave(*key, ticket),
            Self::Pool(pool) => pool.leave(ticket),
        }
    }
}

/// How often one who waits to share a key that is held here looks again whether he may.
const LOOK_AGAIN_AFTER: Duration = Duration::from_millis(250);

/// How long to wait.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Limit {
    /// One attempt.
    Try,
    Within(Duration),
    None,
}

impl Limit {
    const fn is_one_attempt(self) -> bool {
        matches!(self, Self::Try | Self::Within(Duration::ZERO))
    }
}

/// A visit, from its first poll to its answer.
#[derive(Debug)]
pub(crate) struct Visit {
    door: Door,
    limit: Limit,
    polls: bool,
    state: State,
    span: Span,
    entered_at: Moment,
    /// Made when a poll has to wait.
    timer: Option<Pin<Box<Sleep>>>,
    /// The same, for one who waits to share the key.
    look_again: Option<Pin<Box<Sleep>>>,
}

#[derive(Debug)]
enum State {
    Outside,
    Waits {
        ticket: u64,
        answer: oneshot::Receiver<Result<Option<Claim>, EngineError>>,
    },
    Done,
}

impl Visit {
    /// A visit that waits as `limit` says, in the server's queue or, if `polls`, by asking at intervals.
    pub(crate) fn new(door: Door, limit: Limit, polls: bool) -> Self {
        Self {
            door,
            limit,
            polls,
            state: State::Outside,
            span: Span::none(),
            entered_at: Moment::default(),
            timer: None,
            look_again: None,
        }
    }

    /// Changes the mode of a visit that has not begun.
    pub(crate) const fn set_mode(&mut self, to: Mode) {
        if let Door::Gate { mode, .. } = &mut self.door {
            *mode = to;
        }
    }

    pub(crate) const fn mode(&self) -> Mode {
        match &self.door {
            Door::Gate { mode, .. } => *mode,
            Door::Pool(_) => Mode::Exclusive,
        }
    }

    /// Goes on until there is a claim, or `None` for a try that has found everything held.
    pub(crate) fn poll(&mut self, context: &mut Context<'_>) -> Poll<Result<Option<Claim>, AcquireError>> {
        if let Poll::Ready(answer) = self.poll_answer(context) {
            return Poll::Ready(match answer? {
                None if !matches!(self.limit, Limit::Try) => Err(self.timed_out()),
                answer => Ok(answer),
            });
        }
        self.poll_look_again(context);
        match self.limit {
            Limit::Within(limit) if !limit.is_zero() => {
                let timer = self.timer.get_or_insert_with(|| Box::pin(sleep(limit)));
                ready!(timer.as_mut().poll(context));
                self.give_up();
                Poll::Ready(Err(self.timed_out()))
            }
            _ => Poll::Pending,
        }
    }

    fn poll_answer(&mut self, context: &mut Context<'_>) -> Poll<Result<Option<Claim>, AcquireError>> {
        if matches!(self.state, State::Outside) {
            self.begin_span();
            match self.door.enter(self.want()) {
                Entry::Answered(answer) => return Poll::Ready(self.finish(answer)),
                Entry::Waits { ticket, answer } => self.state = State::Waits { ticket, answer },
            }
        }
        let State::Waits { answer, .. } = &mut self.state else {
            // Polled again after it was ready.
            return Poll::Pending;
        };
        let answer = ready!(Pin::new(answer).poll(context)).unwrap_or_else(|_| Err(EngineError::connection_lost()));
        Poll::Ready(self.finish(answer))
    }

    /// What one who enters now wants: the limit runs from the first poll.
    fn want(&self) -> Want {
        match self.limit {
            Limit::Try | Limit::Within(Duration::ZERO) => Want::Try,
            _ if self.polls => Want::Poll,
            Limit::Within(limit) => Want::Queue {
                until: self.door.gate().clock.now().after(limit),
            },
            Limit::None => Want::Queue { until: Moment::NEVER },
        }
    }

    fn poll_look_again(&mut self, context: &mut Context<'_>) {
        let State::Waits { ticket, .. } = self.state else {
            return;
        };
        if self.mode() == Mode::Exclusive || self.limit.is_one_attempt() {
            return;
        }
        // Without a runtime there are no timers, and one who waits without a limit needs no other.
        if self.look_again.is_none() && Handle::try_current().is_err() {
            return;
        }
        let timer = self.look_again.get_or_insert_with(|| Box::pin(sleep(LOOK_AGAIN_AFTER)));
        while timer.as_mut().poll(context).is_ready() {
            timer.as_mut().reset(Instant::now() + LOOK_AGAIN_AFTER);
            self.door.nudge(ticket);
        }
    }

    fn begin_span(&mut self) {
        self.span = debug_span!(
            target: "latchwork::core",
            "acquire",
            key = %self.door.key(),
            mode = %self.mode(),
            scope = "session",
            waited_us = field::Empty,
            outcome = field::Empty,
        );
        if !self.span.is_disabled() {
            self.entered_at = self.door.gate().clock.now();
        }
    }

    fn end_span(&mut self, outcome: &'static str) {
        if !self.span.is_disabled() {
            let waited = self.door.gate().clock.now().since(self.entered_at);
            self.span
                .record("waited_us", u64::try_from(waited.as_micros()).unwrap_or(u64::MAX));
            self.span.record("outcome", outcome);
            self.span = Span::none();
        }
    }

    fn finish(&mut self, answer: Result<Option<Claim>, EngineError>) -> Result<Option<Claim>, AcquireError> {
        self.state = State::Done;
        self.end_span(match &answer {
            Ok(Some(_)) => "granted",
            Ok(None) => "busy",
            Err(_) => "failed",
        });
        answer.map_err(|error| AcquireError::from_engine(self.door.key(), &error))
    }

    fn timed_out(&self) -> AcquireError {
        let key = self.door.key();
        let limit = match self.limit {
            Limit::Within(limit) => limit,
            Limit::Try | Limit::None => Duration::ZERO,
        };
        // A server that does not answer is not contention.
        let outage = self.door.gate().engine.outage();
        outage.map_or(AcquireError::TimedOut { key, limit }, |error| {
            AcquireError::from_engine(key, &error)
        })
    }

    /// Leaves. A claim that has arrived meanwhile is given up with the channel that holds it.
    fn give_up(&mut self) {
        if let State::Waits { ticket, answer } = std::mem::replace(&mut self.state, State::Done) {
            self.door.leave(ticket);
            drop(answer);
            self.end_span("abandoned");
        }
    }
}

impl Drop for Visit {
    fn drop(&mut self) {
        self.give_up();
    }
}

#[cfg(test)]
mod tests;
