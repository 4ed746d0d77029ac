use std::fmt;

use tokio_util::sync::{CancellationToken, DropGuard};

use crate::slots::Permit;

/// One shard that this worker has. Dropped, it is given up without blocking.
#[must_use = "the shard is given up when this is dropped"]
pub struct Shard {
    // Given up before the drop is told of.
    permit: Permit,
    revoked: CancellationToken,
    _dropped: DropGuard,
}

impl Shard {
    pub(super) fn new(permit: Permit, revoked: CancellationToken, dropped: CancellationToken) -> Self {
        Self {
            permit,
            revoked,
            _dropped: dropped.drop_guard(),
        }
    }

    /// Its number, from 0.
    #[must_use]
    pub fn index(&self) -> u32 {
        self.permit.slot()
    }

    /// Whether the shard can be believed to be held right now. Never blocks, and never rests on memory alone.
    #[must_use]
    pub fn is_held(&self) -> bool {
        self.permit.is_held()
    }

    /// Whether the shard is to be given up, or was lost.
    #[must_use]
    pub fn is_revoked(&self) -> bool {
        self.revoked.is_cancelled()
    }

    /// Resolves when the shard is to be given up, for another worker, or was lost.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future has no effect.
    pub async fn revoked(&self) {
        self.revoked.cancelled().await;
    }

    /// A token that is cancelled when the shard is to be given up or was lost.
    #[must_use]
    pub fn cancellation_token(&self) -> CancellationToken {
        self.revoked.clone()
    }
}

impl fmt::Debug for Shard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Shard")
            .field("index", &self.index())
            .field("is_held", &self.is_held())
            .field("is_revoked", &self.is_revoked())
            .finish_non_exhaustive()
    }
}
