use std::{
    fmt,
    future::Future,
    ops::Deref,
    time::{Duration, Instant},
};

use sea_orm::DatabaseTransaction;
use tokio::time::{error::Elapsed, timeout};

use crate::open::{Open, RollBackError};

/// An open transaction on a connection of the pool. Dropped, it is rolled back.
///
/// It is a `DatabaseTransaction` for everything but its end: `commit()` and `rollback()` need one to have, and this only
/// lends it. Nor may statements end it: a COMMIT or ROLLBACK of the handler's is found out at the end and reported as an
/// outcome that is not known. For a savepoint call `begin()`, and end what it returns before the response.
///
/// More locks of transaction scope can be taken on it with [`XactLockExt`](crate::XactLockExt).
///
/// ```compile_fail,E0507
/// async fn handler(tx: latchwork_sea_orm::PooledTx) {
///     let ended = tx.commit().await;
/// }
/// ```
#[must_use = "dropping it rolls it back"]
pub struct PooledTx {
    open: Open,
    answer_within: Duration,
}

impl PooledTx {
    pub(super) const fn new(open: Open, answer_within: Duration) -> Self {
        Self { open, answer_within }
    }

    pub(super) async fn in_time<T>(&self, answer: impl Future<Output = T>) -> Result<T, Elapsed> {
        timeout(self.answer_within, answer).await
    }

    pub(super) async fn roll_back(self) -> Result<(), RollBackError> {
        self.open.roll_back(self.answer_within).await
    }

    pub(super) async fn end_what_runs(&self, since: Instant) {
        self.open.end_what_runs(since).await;
    }

    pub(super) fn has_ended(self) {
        self.open.has_ended();
    }
}

impl Deref for PooledTx {
    type Target = DatabaseTransaction;

    fn deref(&self) -> &DatabaseTransaction {
        &self.open
    }
}

impl fmt::Debug for PooledTx {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PooledTx").finish_non_exhaustive()
    }
}
