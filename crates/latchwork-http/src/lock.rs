//! The policy of a lock for each request.

use std::{sync::Arc, time::Duration};

use bytes::Bytes;
use http::Response;
use latchwork_core::{Locks, Mode, WaitMethod};

use crate::{
    ExtractKey, LockAttempt, OnDisconnect, Rejection, RejectionKind, RequestView, ResponseFormat, SetupError,
    attempt::Terms, key::key_of, refusal::Refusal,
};

/// How requests hold their key.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum LockMode {
    /// Each alone.
    #[default]
    Exclusive,
    /// All together, and none of them beside an exclusive holder.
    Shared,
    /// `GET`, `HEAD`, `OPTIONS` and `TRACE` shared, every other method exclusive.
    ByMethod,
}

impl LockMode {
    /// The mode for a request of this method.
    #[must_use]
    pub fn of_method(self, method: &str) -> Mode {
        match self {
            Self::Exclusive => Mode::Exclusive,
            Self::Shared => Mode::Shared,
            Self::ByMethod if matches!(method, "GET" | "HEAD" | "OPTIONS" | "TRACE") => Mode::Shared,
            Self::ByMethod => Mode::Exclusive,
        }
    }
}

/// A lock for each request: which key, how, and what becomes of those who do not get it.
///
/// `V` is the request as the framework shows it.
#[derive(Debug)]
pub struct LockPolicy<V> {
    locks: Locks,
    key: Arc<dyn ExtractKey<V>>,
    mode: LockMode,
    wait: Option<(Duration, WaitMethod)>,
    answer_within: Duration,
    cancel_on_loss: bool,
    on_disconnect: OnDisconnect,
    refusal: Refusal,
}

impl<V: 'static> LockPolicy<V> {
    /// One exclusive try for the key that is extracted from each request.
    ///
    /// # Errors
    ///
    /// [`SetupError`] if the extractor can never work.
    pub fn new(locks: Locks, key: impl ExtractKey<V>) -> Result<Self, SetupError> {
        key.validate()?;
        Ok(Self {
            locks,
            key: Arc::new(key),
            mode: LockMode::Exclusive,
            wait: None,
            answer_within: DEFAULT_ANSWER_WITHIN,
            cancel_on_loss: true,
            on_disconnect: OnDisconnect::Cancel,
            refusal: Refusal::default(),
        })
    }

    /// Sets how requests hold the key. Default: exclusive.
    #[must_use]
    pub fn mode(self, mode: LockMode) -> Self {
        Self { mode, ..self }
    }

    /// Waits for a key that others hold, for at most `limit`. Default: one try.
    #[must_use]
    pub fn wait(self, limit: Duration) -> Self {
        self.wait_by(limit, WaitMethod::Queue)
    }

    /// As [`wait`](Self::wait), and says how to wait.
    #[must_use]
    pub fn wait_by(mut self, limit: Duration, method: WaitMethod) -> Self {
        self.wait = Some((limit, method));
        self
    }

    /// Sets how long the lock server may take over the answer to a try, before the request is answered with 503.
    /// Default: 5 s. A policy that waits has its own limit instead.
    #[must_use]
    pub fn answer_within(self, limit: Duration) -> Self {
        Self {
            answer_within: limit,
            ..self
        }
    }

    /// Sets whether a handler is cancelled, and its request answered with 503, when its lock is lost while it runs:
    /// others may hold it from then on. Default: yes.
    #[must_use]
    pub fn cancel_on_loss(self, cancel: bool) -> Self {
        Self {
            cancel_on_loss: cancel,
            ..self
        }
    }

    /// Sets what becomes of a handler whose client leaves. Default: it is cancelled.
    #[must_use]
    pub fn on_disconnect(self, on_disconnect: OnDisconnect) -> Self {
        Self { on_disconnect, ..self }
    }

    /// Sets after how long those who are refused may ask again. Default: 1 s. The header holds whole seconds.
    #[must_use]
    pub fn retry_after(mut self, after: Duration) -> Self {
        self.refusal.retry_after = after;
        self
    }

    /// Locks CORS preflights too. Default: they pass without a lock.
    #[must_use]
    pub fn include_preflights(mut self) -> Self {
        self.refusal.preflights = true;
        self
    }

    /// Replaces the answers to those who are refused. The closure is given the usual answer, to keep or to change.
    #[must_use]
    pub fn on_reject(
        mut self,
        replace: impl Fn(&Rejection, Response<Bytes>) -> Response<Bytes> + Send + Sync + 'static,
    ) -> Self {
        self.refusal.on_reject = Some(Arc::new(replace));
        self
    }

    /// Whether a handler is cancelled when its lock is lost.
    #[must_use]
    pub const fn cancels_on_loss(&self) -> bool {
        self.cancel_on_loss
    }

    /// What becomes of a handler whose client leaves.
    #[must_use]
    pub const fn disconnect(&self) -> OnDisconnect {
        self.on_disconnect
    }

    /// Begins the attempt for a request; `None` if it needs no lock.
    ///
    /// # Errors
    ///
    /// A [`Rejection`] if the request has no usable key.
    pub fn attempt(&self, view: &V) -> Result<Option<LockAttempt>, Rejection>
    where
        V: RequestView,
    {
        if self.refusal.leaves_alone(view) {
            return Ok(None);
        }
        let Some(key) = key_of(&*self.key, view, self.locks.namespace())? else {
            return Ok(None);
        };
        let mode = self.mode.of_method(view.method());
        let terms = Terms {
            busy: RejectionKind::LockBusy,
            retry_after: self.refusal.retry_after,
            answer_within: self.answer_within,
        };
        Ok(Some(match self.wait {
            Some((limit, method)) => {
                let acquire = self.locks.acquire(key).mode(mode).wait_by(method).within(limit);
                LockAttempt::within(acquire, terms)
            }
            None => LockAttempt::once(self.locks.try_acquire(key).mode(mode), terms),
        }))
    }

    /// The rejection for a request whose lock was lost while its handler ran.
    #[must_use]
    pub fn lost(&self) -> Rejection {
        Rejection::new(RejectionKind::LockLost).with_retry_after(self.refusal.retry_after)
    }

    /// The answer to a request that is refused.
    #[must_use]
    pub fn respond(&self, rejection: &Rejection, format: ResponseFormat) -> Response<Bytes> {
        self.refusal.respond(rejection, format)
    }
}

/// By hand, since the request itself need not be `Clone`.
impl<V> Clone for LockPolicy<V> {
    fn clone(&self) -> Self {
        Self {
            locks: self.locks.clone(),
            key: Arc::clone(&self.key),
            mode: self.mode,
            wait: self.wait,
            answer_within: self.answer_within,
            cancel_on_loss: self.cancel_on_loss,
            on_disconnect: self.on_disconnect,
            refusal: self.refusal.clone(),
        }
    }
}

pub(crate) const DEFAULT_ANSWER_WITHIN: Duration = Duration::from_secs(5);
