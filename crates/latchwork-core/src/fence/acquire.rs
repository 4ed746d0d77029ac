use std::{
    fmt,
    future::Future,
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    task::{Context, Poll, ready},
    time::Duration,
};

use tokio::{
    sync::oneshot,
    time::{Sleep, sleep},
};

use super::FencedGuard;
use crate::{
    clock::Moment,
    engine::{EngineError, FencedGrant, FencedReply, FencedRequest},
    error::AcquireError,
    key::{Key, KeyError},
    locks::Inner,
    mode::Mode,
};

/// Collects how a key is to be acquired fenced. It becomes a future once it is given a limit.
#[must_use = "nothing is acquired before this is given a limit and awaited"]
pub struct FencedBuilder {
    inner: Arc<Inner>,
    key: Result<Key, KeyError>,
    mode: Mode,
    campaign_delay: Duration,
}

impl FencedBuilder {
    pub(crate) const fn new(inner: Arc<Inner>, key: Result<Key, KeyError>) -> Self {
        Self {
            inner,
            key,
            mode: Mode::Exclusive,
            campaign_delay: Duration::ZERO,
        }
    }

    /// Leaves the key to others for so long each time that it has come free.
    pub(crate) fn with_campaign_delay(self, campaign_delay: Duration) -> Self {
        Self { campaign_delay, ..self }
    }

    /// Shares the key with other shared holders. Default: exclusive.
    pub fn shared(self) -> Self {
        Self {
            mode: Mode::Shared,
            ..self
        }
    }

    /// Waits for at most `limit`. It covers everything: a connection, its age of 5 s by default, the queue in the server, and
    /// the transactions of the last holder. It runs from the first poll. Zero makes exactly one attempt, which succeeds only
    /// on a connection that is old enough.
    pub fn within(self, limit: Duration) -> AcquireFenced {
        self.build(Some(limit))
    }

    /// Waits for as long as it takes.
    pub fn without_limit(self) -> AcquireFenced {
        self.build(None)
    }

    fn build(self, limit: Option<Duration>) -> AcquireFenced {
        AcquireFenced {
            inner: self.inner,
            key: self.key,
            mode: self.mode,
            campaign_delay: self.campaign_delay,
            limit,
            asked: None,
        }
    }
}

impl fmt::Debug for FencedBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FencedBuilder")
            .field("key", &self.key)
            .field("mode", &self.mode)
            .finish_non_exhaustive()
    }
}

/// Waits for a key and returns its fenced guard.
///
/// # Cancel safety
///
/// The future may be dropped at any time. A wait in the server's queue is ended by a cancel request, at the latest with its
/// slice (5 s by default), and what was granted meanwhile is given up at once.
///
/// # Errors
///
/// See [`AcquireError`]; [`AcquireError::TimedOut`] when the limit has run out while others held the key, or their
/// transactions had not ended; [`AcquireError::NotReady`] when it has run out before a connection was old enough to ask.
#[must_use = "futures do nothing unless awaited"]
pub struct AcquireFenced {
    inner: Arc<Inner>,
    key: Result<Key, KeyError>,
    mode: Mode,
    campaign_delay: Duration,
    limit: Option<Duration>,
    asked: Option<Asked>,
}

struct Asked {
    answer: oneshot::Receiver<Result<Option<FencedGrant>, EngineError>>,
    is_preparing: Arc<AtomicBool>,
    timer: Option<Pin<Box<Sleep>>>,
}

impl AcquireFenced {
    fn ask(&self, key: Key) -> Asked {
        let (inner, limit) = (&self.inner, self.limit);
        let (reply, answer, is_preparing) = FencedReply::new();
        let until = limit.map_or(Moment::NEVER, |limit| inner.clock.now().after(limit));
        let request = FencedRequest::new(key, self.mode, self.campaign_delay, until, reply);
        inner.engine.acquire_fenced(request);
        Asked {
            answer,
            is_preparing,
            // One attempt is the engine's to make, which takes as long as it takes.
            timer: limit
                .filter(|limit| !limit.is_zero())
                .map(|limit| Box::pin(sleep(limit))),
        }
    }

    /// An outage is not contention.
    fn out_of_time(&self, key: Key) -> AcquireError {
        let limit = self.limit.unwrap_or_default();
        let is_preparing = |asked: &Asked| asked.is_preparing.load(Ordering::Acquire);
        let is_preparing = self.asked.as_ref().is_some_and(is_preparing);
        match self.inner.engine.outage() {
            Some(error) => AcquireError::from_engine(key, &error),
            None if is_preparing => AcquireError::NotReady { key, limit },
            None => AcquireError::TimedOut { key, limit },
        }
    }
}

impl Future for AcquireFenced {
    type Output = Result<FencedGuard, AcquireError>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let this = &mut *self;
        let key = match &this.key {
            Ok(key) => *key,
            Err(error) => return Poll::Ready(Err(error.clone().into())),
        };
        if this.inner.is_closed() {
            return Poll::Ready(Err(AcquireError::Closed));
        }
        if this.asked.is_none() {
            this.asked = Some(this.ask(key));
        }
        let asked = this.asked.as_mut().expect("it was asked");
        if let Poll::Ready(answer) = Pin::new(&mut asked.answer).poll(context) {
            return Poll::Ready(match answer.unwrap_or_else(|_| Err(EngineError::connection_lost())) {
                Ok(Some(grant)) => Ok(FencedGuard::new(Arc::clone(&this.inner), grant)),
                Ok(None) => Err(this.out_of_time(key)),
                Err(error) => Err(AcquireError::from_engine(key, &error)),
            });
        }
        let Some(timer) = &mut asked.timer else {
            return Poll::Pending;
        };
        ready!(timer.as_mut().poll(context));
        // Nobody waits for the answer any more, which the engine sees.
        asked.answer.close();
        Poll::Ready(Err(this.out_of_time(key)))
    }
}

impl fmt::Debug for AcquireFenced {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AcquireFenced")
            .field("key", &self.key)
            .field("mode", &self.mode)
            .field("limit", &self.limit)
            .finish_non_exhaustive()
    }
}
