use std::time::Duration;

use super::{KeySet, XactWait};
use crate::{Mode, fence::Fence};

/// Which keys a transaction asks for, and how.
#[derive(Clone, Debug)]
pub struct XactRequest {
    pub(super) keys: KeySet,
    pub(super) mode: Mode,
    pub(super) allow_stale_snapshot: bool,
    pub(super) fence: Option<(Fence, FencedLimits)>,
}

impl XactRequest {
    /// Exclusive locks on all of the keys, or on none.
    pub fn new(keys: impl Into<KeySet>) -> Self {
        Self {
            keys: keys.into(),
            mode: Mode::Exclusive,
            allow_stale_snapshot: false,
            fence: None,
        }
    }

    /// Proves a fence: takes the key that the transactions of its holders share, so that no later grant begins before this
    /// transaction has ended, and then finds the grant in force. To be the first thing that a transaction does, and not
    /// under a savepoint.
    #[must_use]
    pub fn fenced(fence: &Fence, limits: FencedLimits) -> Self {
        Self {
            fence: Some((*fence, limits)),
            ..Self::new(Fence::transactions_key(fence.key(), fence.mode())).with_mode(Mode::Shared)
        }
    }

    /// Sets how the keys are locked. Default: exclusive.
    #[must_use]
    pub fn with_mode(self, mode: Mode) -> Self {
        Self { mode, ..self }
    }

    /// Takes the lock in REPEATABLE READ and SERIALIZABLE too. The default is to refuse, since the work then does not
    /// see what the last holder has committed.
    #[must_use]
    pub fn allow_stale_snapshot(self) -> Self {
        Self {
            allow_stale_snapshot: true,
            ..self
        }
    }

    /// The waits of a transaction for its locks: a new one each time that it is begun. Each is within `limit`, or as long as it
    /// takes without one.
    pub fn waits(self, limit: Option<Duration>) -> impl Fn() -> XactWait + Send + Sync {
        move || XactWait::within(self.clone(), limit)
    }

    /// How the keys are locked.
    #[must_use]
    pub const fn mode(&self) -> Mode {
        self.mode
    }

    /// The keys.
    #[must_use]
    pub const fn keys(&self) -> &KeySet {
        &self.keys
    }
}

/// After how long the server ends a fenced transaction, so that one that is paused does not keep the next holder waiting
/// for ever.
///
/// # Examples
///
/// ```
/// use std::time::Duration;
/// use latchwork_core::xact::FencedLimits;
///
/// let nightly = FencedLimits::default().with_transaction(Duration::from_secs(600));
/// # let _ = nightly;
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FencedLimits {
    pub(super) idle: Duration,
    pub(super) transaction: Duration,
}

impl FencedLimits {
    /// Sets for how long the transaction may wait for its client. Default: 15 s. At least 1 ms, in whole milliseconds.
    #[must_use]
    pub const fn with_idle(self, idle: Duration) -> Self {
        Self { idle, ..self }
    }

    /// Sets how long the transaction may take as a whole; on PostgreSQL 17 and later only. Default: 60 s. At least 1 ms,
    /// in whole milliseconds.
    #[must_use]
    pub const fn with_transaction(self, transaction: Duration) -> Self {
        Self { transaction, ..self }
    }
}

impl Default for FencedLimits {
    fn default() -> Self {
        Self {
            idle: Duration::from_secs(15),
            transaction: Duration::from_secs(60),
        }
    }
}
