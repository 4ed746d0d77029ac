//! A handler under its lock.

use std::{
    fmt,
    future::Future,
    pin::Pin,
    task::{Context, Poll, ready},
    time::Duration,
};

use latchwork_core::Guard;
use pin_project_lite::pin_project;
use tokio::time::timeout;
use tracing::warn;

use crate::held::Hold;

/// How long a response waits for the server's word that the lock is free. The lock is given up all the same.
const RELEASE_LIMIT: Duration = Duration::from_secs(1);

/// The lock was lost while its handler ran, and the handler dropped.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the lock was lost, and the handler stopped midway")]
#[non_exhaustive]
pub struct LockLost;

type Boxed = Pin<Box<dyn Future<Output = ()> + Send>>;

pin_project! {
    /// Polls a handler while the lock is held, and gives the lock up when it ends. A client that has the response in
    /// its hands finds the lock free on every instance: so the output waits for the server's word.
    ///
    /// The handler comes first: whenever both are dropped, by a panic too, nothing of it runs without the lock.
    ///
    /// # Cancel safety
    ///
    /// Dropping it drops the handler, then gives the lock up.
    ///
    /// # Errors
    ///
    /// [`LockLost`], if the handler is to be cancelled then.
    #[must_use = "futures do nothing unless awaited"]
    pub struct UnderLock<F>
    where
        F: Future,
    {
        #[pin]
        handler: Option<F>,
        lost: Option<Boxed>,
        hold: Option<Hold<Guard>>,
        cancel_on_loss: bool,
        output: Option<F::Output>,
        release: Option<Boxed>,
    }
}

impl<F: Future> UnderLock<F> {
    /// Runs `handler` under a lock; `cancel_on_loss` says whether it is dropped when the lock is lost.
    pub const fn new(handler: F, hold: Hold<Guard>, cancel_on_loss: bool) -> Self {
        Self {
            handler: Some(handler),
            lost: None,
            hold: Some(hold),
            cancel_on_loss,
            output: None,
            release: None,
        }
    }

    /// Polls the handler, unless its lock is lost.
    fn poll_handler(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Result<F::Output, LockLost>> {
        let this = self.project();
        if *this.cancel_on_loss && this.hold.as_ref().is_some_and(Hold::<Guard>::is_lost) {
            return Poll::Ready(Err(LockLost));
        }
        let Some(handler) = this.handler.as_pin_mut() else {
            // Polled again after it was ready.
            return Poll::Pending;
        };
        if let Poll::Ready(output) = handler.poll(context) {
            return Poll::Ready(Ok(output));
        }
        if *this.cancel_on_loss {
            if this.lost.is_none() {
                *this.lost = this
                    .hold
                    .as_ref()
                    .and_then(Hold::<Guard>::lost)
                    .map(|lost| Box::pin(lost) as _);
            }
            if let Some(lost) = this.lost {
                ready!(lost.as_mut().poll(context));
                return Poll::Ready(Err(LockLost));
            }
        }
        Poll::Pending
    }
}

impl<F: Future> Future for UnderLock<F> {
    type Output = Result<F::Output, LockLost>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        if self.release.is_none() {
            let output = ready!(self.as_mut().poll_handler(context));
            let mut this = self.as_mut().project();
            this.handler.set(None);
            *this.lost = None;
            let hold = this.hold.take();
            match output {
                Ok(output) => {
                    *this.output = Some(output);
                    *this.release = hold.map(|hold| Box::pin(released(hold)) as _);
                }
                Err(lost) => return Poll::Ready(Err(lost)),
            }
        }
        let this = self.project();
        if let Some(release) = this.release {
            ready!(release.as_mut().poll(context));
        }
        match this.output.take() {
            Some(output) => Poll::Ready(Ok(output)),
            // Polled again after it was ready.
            None => Poll::Pending,
        }
    }
}

impl<F: Future> fmt::Debug for UnderLock<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("UnderLock").finish_non_exhaustive()
    }
}

/// Gives a lock up now, and resolves when the server has said so.
fn released(hold: Hold<Guard>) -> impl Future<Output = ()> + Send {
    let release = hold.release();
    async move {
        let Some(release) = release else { return };
        match timeout(RELEASE_LIMIT, release).await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => {
                let error: &dyn std::error::Error = &error;
                warn!(target: "latchwork::http", error, "a request was handled, and its lock may not have been held to the end");
            }
            Err(_) => {
                warn!(target: "latchwork::http", "the server has not said that a lock is free; responding anyway")
            }
        }
    }
}
