//! The policy of at most so many requests at once.

use std::{sync::Arc, time::Duration};

use bytes::Bytes;
use http::Response;
use latchwork_core::{
    Locks, Slots,
    slots::{MAX_SLOTS, SlotsError},
};

use crate::{
    ExtractError, ExtractKey, OnDisconnect, Rejection, RejectionKind, RequestView, ResponseFormat, SetupError,
    SlotAttempt, attempt::Terms, key::key_of, lock::DEFAULT_ANSWER_WITHIN, refusal::Refusal,
};

/// Whose limit it is that was reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Capacity {
    /// The client's own: 429.
    PerClient,
    /// That of the whole service: 503.
    Global,
}

/// At most so many requests at once, over all instances of the service.
///
/// `V` is the request as the framework shows it.
#[derive(Debug)]
pub struct SlotPolicy<V> {
    pools: Pools<V>,
    capacity: Capacity,
    wait: Option<Duration>,
    answer_within: Duration,
    until_response: bool,
    on_disconnect: OnDisconnect,
    refusal: Refusal,
}

#[derive(Debug)]
enum Pools<V> {
    One(Slots),
    ByKey {
        locks: Locks,
        key: Arc<dyn ExtractKey<V>>,
        limit: u32,
    },
}

impl<V: 'static> SlotPolicy<V> {
    /// One pool for all requests. Full is 503: the service is at its capacity.
    #[must_use]
    pub fn global(slots: Slots) -> Self {
        Self::new(Pools::One(slots), Capacity::Global)
    }

    /// A pool of `limit` slots for each key that is extracted from requests, such as one for each client. Full is 429.
    ///
    /// Put a text first in the key: pools of one key are one pool, and two policies that give it different limits get
    /// in each other's way.
    ///
    /// # Errors
    ///
    /// [`SetupError`] if the extractor can never work, or for a limit of zero or above
    /// [`MAX_SLOTS`].
    pub fn per(locks: Locks, key: impl ExtractKey<V>, limit: u32) -> Result<Self, SetupError> {
        key.validate()?;
        match limit {
            0 => return Err(SlotsError::NoSlots.into()),
            1..=MAX_SLOTS => {}
            _ => return Err(SlotsError::TooManySlots { limit }.into()),
        }
        let key = Arc::new(key);
        Ok(Self::new(Pools::ByKey { locks, key, limit }, Capacity::PerClient))
    }

    fn new(pools: Pools<V>, capacity: Capacity) -> Self {
        Self {
            pools,
            capacity,
            wait: None,
            answer_within: DEFAULT_ANSWER_WITHIN,
            until_response: false,
            on_disconnect: OnDisconnect::Cancel,
            refusal: Refusal::default(),
        }
    }

    /// Sets whose limit it is, and so the status of those who are refused. Default: that of the constructor.
    #[must_use]
    pub fn capacity(self, capacity: Capacity) -> Self {
        Self { capacity, ..self }
    }

    /// Waits for a free slot, for at most `limit`. Default: one try.
    #[must_use]
    pub fn wait(mut self, limit: Duration) -> Self {
        self.wait = Some(limit);
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

    /// Gives the slot up when the handler has returned its response. Default: when the body was sent, has failed, or
    /// was dropped. So slow readers do not fill the slots, but streamed work runs on without one.
    #[must_use]
    pub fn until_response(self) -> Self {
        Self {
            until_response: true,
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

    /// Counts CORS preflights too. Default: they pass without a slot.
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

    /// Whether the slot is given up when the handler has returned its response.
    #[must_use]
    pub const fn ends_at_response(&self) -> bool {
        self.until_response
    }

    /// What becomes of a handler whose client leaves.
    #[must_use]
    pub const fn disconnect(&self) -> OnDisconnect {
        self.on_disconnect
    }

    /// Begins the attempt for a request; `None` if it needs no slot.
    ///
    /// # Errors
    ///
    /// A [`Rejection`] if the request has no usable key, or if its pool is in use with another limit.
    pub fn attempt(&self, view: &V) -> Result<Option<SlotAttempt>, Rejection>
    where
        V: RequestView,
    {
        if self.refusal.leaves_alone(view) {
            return Ok(None);
        }
        let Some(slots) = self.slots(view)? else {
            return Ok(None);
        };
        let terms = Terms {
            busy: RejectionKind::SlotsFull(self.capacity),
            retry_after: self.refusal.retry_after,
            answer_within: self.answer_within,
        };
        Ok(Some(match self.wait {
            Some(limit) => SlotAttempt::within(slots.acquire().within(limit), terms),
            None => SlotAttempt::once(slots.try_acquire(), terms),
        }))
    }

    fn slots(&self, view: &V) -> Result<Option<Slots>, ExtractError> {
        match &self.pools {
            Pools::One(slots) => Ok(Some(slots.clone())),
            Pools::ByKey { locks, key, limit } => {
                let Some(key) = key_of(&**key, view, locks.namespace())? else {
                    return Ok(None);
                };
                let slots = locks.slots(key, *limit);
                slots.map(Some).map_err(|_| ExtractError::setup(OTHER_LIMIT))
            }
        }
    }

    /// The answer to a request that is refused.
    #[must_use]
    pub fn respond(&self, rejection: &Rejection, format: ResponseFormat) -> Response<Bytes> {
        self.refusal.respond(rejection, format)
    }
}

/// By hand, since the request itself need not be `Clone`.
impl<V> Clone for SlotPolicy<V> {
    fn clone(&self) -> Self {
        Self {
            pools: self.pools.clone(),
            capacity: self.capacity,
            wait: self.wait,
            answer_within: self.answer_within,
            until_response: self.until_response,
            on_disconnect: self.on_disconnect,
            refusal: self.refusal.clone(),
        }
    }
}

impl<V> Clone for Pools<V> {
    fn clone(&self) -> Self {
        match self {
            Self::One(slots) => Self::One(slots.clone()),
            Self::ByKey { locks, key, limit } => Self::ByKey {
                locks: locks.clone(),
                key: Arc::clone(key),
                limit: *limit,
            },
        }
    }
}

const OTHER_LIMIT: &str = "two policies of the service give the same key different numbers of slots";
