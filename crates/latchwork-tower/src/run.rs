//! Where a handler runs: in the request's future, or in a task of its own.

use std::{
    future::Future,
    panic::resume_unwind,
    pin::Pin,
    task::{Context, Poll, ready},
};

use latchwork_http::OnDisconnect;
use pin_project_lite::pin_project;
use tokio::task::JoinHandle;
use tracing::{Instrument, Span};

pin_project! {
    #[project = RunProj]
    pub(crate) enum Run<W, O> {
        Here {
            #[pin]
            work: W,
        },
        InTask {
            task: JoinHandle<O>,
        },
    }
}

/// The runtime has ended the task. It is shutting down.
pub(crate) struct TaskEnded;

impl<W, O> Run<W, O>
where
    W: Future<Output = O> + Send + 'static,
    O: Send + 'static,
{
    pub(crate) fn new(work: W, on_disconnect: OnDisconnect) -> Self {
        match on_disconnect {
            OnDisconnect::Complete => Self::InTask {
                task: tokio::spawn(work.instrument(Span::current())),
            },
            _ => Self::Here { work },
        }
    }
}

impl<W: Future<Output = O>, O> Future for Run<W, O> {
    type Output = Result<O, TaskEnded>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        match self.project() {
            RunProj::Here { work } => work.poll(context).map(Ok),
            RunProj::InTask { task } => match ready!(Pin::new(task).poll(context)) {
                Ok(output) => Poll::Ready(Ok(output)),
                // As if the handler ran here: whoever catches panics outside of us sees its own.
                Err(error) if error.is_panic() => resume_unwind(error.into_panic()),
                Err(_) => Poll::Ready(Err(TaskEnded)),
            },
        }
    }
}
