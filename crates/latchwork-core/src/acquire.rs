//! The futures that acquire a key.

use std::{
    future::Future,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
    time::Duration,
};

use crate::{
    error::AcquireError,
    guard::Guard,
    key::{Key, KeyError},
    locks::ShardHandle,
    mode::Mode,
    visit::{Door, Limit, Visit},
};

/// How a key that others hold is waited for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum WaitMethod {
    /// In the server's queue, so that the key arrives as soon as it is free, and in turn.
    #[default]
    Queue,
    /// By asking at intervals. It leaves no statement waiting in the server, so that a holder may do what waits for all
    /// open transactions to end (such as `CREATE INDEX CONCURRENTLY`); there are no turns, and a busy key may never be
    /// found free.
    Poll,
}

/// Collects how a key is to be acquired. It becomes a future once it is given a limit.
#[derive(Debug)]
#[must_use = "nothing is acquired before this is given a limit and awaited"]
pub struct AcquireBuilder {
    at: Result<(Arc<ShardHandle>, Key), KeyError>,
    mode: Mode,
    method: WaitMethod,
}

impl AcquireBuilder {
    pub(crate) const fn new(at: Result<(Arc<ShardHandle>, Key), KeyError>) -> Self {
        Self {
            at,
            mode: Mode::Exclusive,
            method: WaitMethod::Queue,
        }
    }

    /// Shares the key with other shared holders. Default: exclusive.
    pub const fn shared(self) -> Self {
        self.mode(Mode::Shared)
    }

    /// Sets the mode. Default: exclusive.
    pub const fn mode(mut self, mode: Mode) -> Self {
        self.mode = mode;
        self
    }

    /// Sets how to wait. Default: in the server's queue.
    pub const fn wait_by(mut self, method: WaitMethod) -> Self {
        self.method = method;
        self
    }

    /// Waits for at most `limit`. The limit covers everything: the local queue, a connection that has yet to be made,
    /// and the queue in the server. Zero makes exactly one attempt. It runs from the first poll.
    pub fn within(self, limit: Duration) -> Acquire {
        self.build(Limit::Within(limit))
    }

    /// Waits for as long as it takes.
    pub fn without_limit(self) -> Acquire {
        self.build(Limit::None)
    }

    fn build(self, limit: Limit) -> Acquire {
        let Self { at, mode, method } = self;
        let polls = method == WaitMethod::Poll;
        Acquire {
            visit: at.map(|(gate, key)| Visit::new(Door::Gate { gate, key, mode }, limit, polls)),
        }
    }
}

/// Waits for a key and returns its guard.
///
/// # Cancel safety
///
/// The future may be dropped at any time. Its place in the local queue goes at once. A request that was on its way is
/// undone as soon as its answer comes, within two round trips; a wait in the server's queue is ended by a cancel
/// request, and at the latest with its slice (5 s by default). Nothing stays held.
///
/// # Errors
///
/// See [`AcquireError`]; [`AcquireError::TimedOut`] when the limit has run out while others held the key.
#[derive(Debug)]
#[must_use = "futures do nothing unless awaited"]
pub struct Acquire {
    visit: Result<Visit, KeyError>,
}

impl Future for Acquire {
    type Output = Result<Guard, AcquireError>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        match &mut self.visit {
            Ok(visit) => {
                let claim = ready!(visit.poll(context))?.expect("only a try is answered with nothing");
                Poll::Ready(Ok(Guard::new(claim, visit.mode())))
            }
            Err(error) => Poll::Ready(Err(error.clone().into())),
        }
    }
}

/// Tries once to acquire a key.
///
/// # Cancel safety
///
/// As for [`Acquire`]: the future may be dropped at any time, and a grant that is on its way is undone when it comes.
///
/// # Errors
///
/// See [`AcquireError`]. That others hold the key is not an error but `Ok(None)`.
#[derive(Debug)]
#[must_use = "futures do nothing unless awaited"]
pub struct TryAcquire {
    visit: Result<Visit, KeyError>,
}

impl TryAcquire {
    pub(crate) fn new(at: Result<(Arc<ShardHandle>, Key), KeyError>) -> Self {
        let mode = Mode::Exclusive;
        Self {
            visit: at.map(|(gate, key)| Visit::new(Door::Gate { gate, key, mode }, Limit::Try, false)),
        }
    }

    /// Shares the key with other shared holders. Default: exclusive. To be called before the future is polled.
    pub const fn shared(self) -> Self {
        self.mode(Mode::Shared)
    }

    /// Sets the mode. Default: exclusive. To be called before the future is polled.
    pub const fn mode(mut self, mode: Mode) -> Self {
        if let Ok(visit) = &mut self.visit {
            visit.set_mode(mode);
        }
        self
    }
}

impl Future for TryAcquire {
    type Output = Result<Option<Guard>, AcquireError>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        match &mut self.visit {
            Ok(visit) => {
                let mode = visit.mode();
                Poll::Ready(Ok(ready!(visit.poll(context))?.map(|claim| Guard::new(claim, mode))))
            }
            Err(error) => Poll::Ready(Err(error.clone().into())),
        }
    }
}
