use std::{future::Future, time::Duration};

use tokio::{spawn, time::timeout};
use tracing::Instrument;

use super::{TxError, error::Cause};

/// Does what must not be dropped midway in a task of its own, and waits for it for at most `limit`: it goes on when
/// nobody waits any more. `unanswered` says what is known then.
pub(crate) async fn in_task<T: Send + 'static>(
    limit: Duration,
    work: impl Future<Output = Result<T, TxError>> + Send + 'static,
    unanswered: fn(Cause) -> TxError,
) -> Result<T, TxError> {
    match timeout(limit, spawn(work.in_current_span())).await {
        Ok(Ok(done)) => done,
        Ok(Err(error)) => Err(unanswered(error.into())),
        Err(elapsed) => Err(unanswered(elapsed.into())),
    }
}
