//! A handler under its lock.

use std::{
    future::Future,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
};

use latchwork_core::Guard;
use latchwork_http::{Hold, LockLost, LockPolicy};
use pin_project_lite::pin_project;
use tracing::warn;

use crate::{
    RequestHead,
    admission::{Outcome, Under},
};

type Policy = LockPolicy<RequestHead>;

pin_project! {
    /// A handler under its lock, and the policy that says what a lost lock is answered with.
    pub(super) struct UnderLock<F>
    where
        F: Future,
    {
        #[pin]
        work: latchwork_http::UnderLock<F>,
        policy: Arc<Policy>,
    }
}

impl<F: Future> Under<Policy, F> for UnderLock<F> {
    fn new(handler: F, hold: Hold<Guard>, policy: &Arc<Policy>) -> Self {
        Self {
            work: latchwork_http::UnderLock::new(handler, hold, policy.cancels_on_loss()),
            policy: Arc::clone(policy),
        }
    }
}

impl<F: Future<Output = Result<R, E>>, R, E> Future for UnderLock<F> {
    type Output = Outcome<Policy, R, E>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.project();
        Poll::Ready(match ready!(this.work.poll(context)) {
            Ok(output) => Ok(output.map(|response| (response, ()))),
            Err(LockLost { .. }) => {
                warn!(target: "latchwork::tower", "a lock was lost while its request was handled");
                Err(this.policy.lost())
            }
        })
    }
}
