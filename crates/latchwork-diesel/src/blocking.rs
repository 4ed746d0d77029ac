use std::{future::pending, panic::resume_unwind};

use tokio::task::{JoinError, spawn_blocking};

/// Runs work on a thread that it may block. A panic of the work goes on here.
pub(crate) async fn on_blocking_thread<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> T {
    match spawn_blocking(work).await.map_err(JoinError::try_into_panic) {
        Ok(done) => done,
        Err(Ok(panic)) => resume_unwind(panic),
        // The runtime shuts down, and drops this future too.
        Err(Err(_)) => pending().await,
    }
}
