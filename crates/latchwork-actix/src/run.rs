//! Where a handler runs: in the request's future, or in a task of its own.

use std::{future::Future, panic::resume_unwind};

use actix_web::rt::spawn;
use latchwork_http::OnDisconnect;
use tracing::{Instrument, Span};

/// The runtime has ended the task. It is shutting down.
pub(crate) struct TaskEnded;

/// Runs what a request asks for. The task is one of this worker's thread, as actix-web's handlers are not `Send`.
pub(crate) async fn run<W>(work: W, on_disconnect: OnDisconnect) -> Result<W::Output, TaskEnded>
where
    W: Future + 'static,
    W::Output: 'static,
{
    if on_disconnect != OnDisconnect::Complete {
        return Ok(work.await);
    }
    match spawn(work.instrument(Span::current())).await {
        Ok(output) => Ok(output),
        // As if the handler ran here: whoever catches panics outside of us sees its own.
        Err(error) if error.is_panic() => resume_unwind(error.into_panic()),
        Err(_) => Err(TaskEnded),
    }
}
