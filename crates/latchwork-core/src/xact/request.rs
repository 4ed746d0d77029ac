use super::KeySet;
use crate::Mode;

/// Which keys a transaction asks for, and how.
#[derive(Clone, Debug)]
pub struct XactRequest {
    pub(super) keys: KeySet,
    pub(super) mode: Mode,
    pub(super) allow_stale_snapshot: bool,
}

impl XactRequest {
    /// Exclusive locks on all of the keys, or on none.
    pub fn new(keys: impl Into<KeySet>) -> Self {
        Self {
            keys: keys.into(),
            mode: Mode::Exclusive,
            allow_stale_snapshot: false,
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

    /// The keys.
    #[must_use]
    pub const fn keys(&self) -> &KeySet {
        &self.keys
    }
}
