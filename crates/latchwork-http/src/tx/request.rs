use std::{
    fmt,
    sync::{Arc, Weak},
    time::Duration,
};

use latchwork_core::{Key, Mode};

/// The transaction that a request needs, as its provider is asked for it.
#[derive(Clone)]
pub struct TxRequest {
    key: Key,
    mode: Mode,
    wait: Option<Duration>,
    answer_within: Duration,
    /// Goes with whoever asks.
    asked: Option<Weak<()>>,
}

/// Longer than anybody waits, and short enough to be added to the present moment: 100 years.
const LONGEST: Duration = Duration::from_secs(100 * 366 * 86_400);

impl TxRequest {
    /// A transaction that has tried once for an exclusive lock.
    #[must_use]
    pub fn new(key: Key) -> Self {
        Self {
            key,
            mode: Mode::Exclusive,
            wait: None,
            answer_within: crate::lock::DEFAULT_ANSWER_WITHIN,
            asked: None,
        }
    }

    /// Sets how the key is locked. Default: exclusive.
    #[must_use]
    pub fn with_mode(self, mode: Mode) -> Self {
        Self { mode, ..self }
    }

    /// Waits for a key that others hold, for at most `limit`. Default: one try.
    #[must_use]
    pub fn with_wait(mut self, limit: Duration) -> Self {
        self.wait = Some(limit.min(LONGEST));
        self
    }

    /// Sets how long anything but that wait may take: a connection, BEGIN, and the end. Default: 5 s.
    #[must_use]
    pub fn with_answer_within(self, limit: Duration) -> Self {
        Self {
            answer_within: limit.min(LONGEST),
            ..self
        }
    }

    /// The key to lock.
    #[must_use]
    pub const fn key(&self) -> Key {
        self.key
    }

    /// How to lock it.
    #[must_use]
    pub const fn mode(&self) -> Mode {
        self.mode
    }

    /// How long to wait for it, counted from the call of [`begin`](crate::tx::TxProvider::begin); `None` for one try.
    #[must_use]
    pub const fn wait(&self) -> Option<Duration> {
        self.wait
    }

    /// How long anything but that wait may take: a connection and BEGIN together, and later the end. A connection on
    /// which something took longer is closed.
    #[must_use]
    pub const fn answer_within(&self) -> Duration {
        self.answer_within
    }

    /// Whether nobody waits for the transaction any more, so that a provider can stop waiting too. It need not: a
    /// transaction that nobody waits for is rolled back.
    #[must_use]
    pub fn is_abandoned(&self) -> bool {
        self.asked.as_ref().is_some_and(|asked| asked.strong_count() == 0)
    }

    /// Ties the request to who asks: it is abandoned when what is returned is dropped.
    pub(super) fn watched(mut self) -> (Arc<()>, Self) {
        let asks = Arc::new(());
        self.asked = Some(Arc::downgrade(&asks));
        (asks, self)
    }
}

impl fmt::Debug for TxRequest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TxRequest")
            .field("key", &self.key)
            .field("mode", &self.mode)
            .field("wait", &self.wait)
            .field("answer_within", &self.answer_within)
            .finish_non_exhaustive()
    }
}
