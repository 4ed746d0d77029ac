//! The futures that wait to be let in.

use std::{
    future::Future,
    pin::Pin,
    task::{Context, Poll},
    time::Duration,
};

use latchwork_core::{
    Acquire, AcquireError, Guard, Permit, TryAcquire,
    slots::{AcquirePermit, TryAcquirePermit},
};
use tokio::time::{Sleep, sleep};

use crate::{Rejection, RejectionKind};

/// Waits for the lock that a request needs, as its policy says.
///
/// # Cancel safety
///
/// As for [`Acquire`]: the future may be dropped at any time, and nothing stays held.
///
/// # Errors
///
/// The [`Rejection`] to answer with.
#[derive(Debug)]
#[must_use = "futures do nothing unless awaited"]
pub struct LockAttempt(Attempt<TryAcquire, Acquire>);

impl LockAttempt {
    pub(crate) const fn once(attempt: TryAcquire, terms: Terms) -> Self {
        Self(Attempt::new(Asked::Once(attempt), terms))
    }

    pub(crate) const fn within(attempt: Acquire, terms: Terms) -> Self {
        Self(Attempt::new(Asked::Within(attempt), terms))
    }
}

impl Future for LockAttempt {
    type Output = Result<Guard, Rejection>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        self.0.poll(context)
    }
}

/// Waits for the slot that a request needs, as its policy says.
///
/// # Cancel safety
///
/// As for [`AcquirePermit`]: the future may be dropped at any time, and nothing stays held.
///
/// # Errors
///
/// The [`Rejection`] to answer with.
#[derive(Debug)]
#[must_use = "futures do nothing unless awaited"]
pub struct SlotAttempt(Attempt<TryAcquirePermit, AcquirePermit>);

impl SlotAttempt {
    pub(crate) const fn once(attempt: TryAcquirePermit, terms: Terms) -> Self {
        Self(Attempt::new(Asked::Once(attempt), terms))
    }

    pub(crate) const fn within(attempt: AcquirePermit, terms: Terms) -> Self {
        Self(Attempt::new(Asked::Within(attempt), terms))
    }
}

impl Future for SlotAttempt {
    type Output = Result<Permit, Rejection>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        self.0.poll(context)
    }
}

/// What a policy has said of an attempt.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Terms {
    /// What it means that others were there.
    pub(crate) busy: RejectionKind,
    pub(crate) retry_after: Duration,
    /// How long the server may take over the answer to a single try.
    pub(crate) answer_within: Duration,
}

#[derive(Debug)]
struct Attempt<O, W> {
    asked: Asked<O, W>,
    /// Made when a try has to wait for its answer.
    timer: Option<Pin<Box<Sleep>>>,
    terms: Terms,
}

#[derive(Debug)]
enum Asked<O, W> {
    Once(O),
    Within(W),
}

impl<O, W> Attempt<O, W> {
    const fn new(asked: Asked<O, W>, terms: Terms) -> Self {
        Self {
            asked,
            timer: None,
            terms,
        }
    }

    fn poll<T>(&mut self, context: &mut Context<'_>) -> Poll<Result<T, Rejection>>
    where
        O: Future<Output = Result<Option<T>, AcquireError>> + Unpin,
        W: Future<Output = Result<T, AcquireError>> + Unpin,
    {
        let Terms { busy, retry_after, .. } = self.terms;
        let answer = match &mut self.asked {
            Asked::Within(attempt) => Pin::new(attempt)
                .poll(context)
                .map_err(|error| Rejection::from_acquire(error, busy)),
            Asked::Once(attempt) => match Pin::new(attempt).poll(context) {
                Poll::Ready(Ok(Some(grant))) => Poll::Ready(Ok(grant)),
                Poll::Ready(Ok(None)) => Poll::Ready(Err(Rejection::new(busy))),
                Poll::Ready(Err(error)) => Poll::Ready(Err(Rejection::from_acquire(error, busy))),
                Poll::Pending => self.poll_patience(context),
            },
        };
        answer.map_err(|rejection| rejection.or_retry_after(retry_after))
    }

    /// A server that does not answer in time is not contention.
    fn poll_patience<T>(&mut self, context: &mut Context<'_>) -> Poll<Result<T, Rejection>> {
        let limit = self.terms.answer_within;
        let timer = self.timer.get_or_insert_with(|| Box::pin(sleep(limit)));
        timer
            .as_mut()
            .poll(context)
            .map(|()| Err(Rejection::new(RejectionKind::Unavailable)))
    }
}
