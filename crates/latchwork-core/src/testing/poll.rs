//! Futures that a test polls by hand.

use std::{
    future::Future,
    pin::Pin,
    task::{Context, Poll, Waker},
};

/// A future that nobody wakes.
pub(crate) struct Polled<F>(Pin<Box<F>>);

impl<F: Future> Polled<F> {
    pub(crate) fn new(future: F) -> Self {
        Self(Box::pin(future))
    }

    /// Polls once.
    pub(crate) fn poll(&mut self) -> Poll<F::Output> {
        self.0.as_mut().poll(&mut Context::from_waker(Waker::noop()))
    }

    pub(crate) fn is_pending(&mut self) -> bool {
        self.poll().is_pending()
    }

    pub(crate) fn ready(&mut self) -> F::Output {
        match self.poll() {
            Poll::Ready(output) => output,
            Poll::Pending => panic!("the future is not ready"),
        }
    }
}

/// Polls a future for the first time, and keeps it.
pub(crate) fn poll<F: Future>(future: F) -> Polled<F> {
    let mut polled = Polled::new(future);
    assert!(polled.is_pending(), "the future is ready at once");
    polled
}
