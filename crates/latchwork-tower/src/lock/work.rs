//! A handler under its lock.

use std::{
    future::Future,
    pin::Pin,
    task::{Context, Poll, ready},
};

use pin_project_lite::pin_project;

use super::held::Hold;

/// The lock was lost, and the handler dropped.
pub(super) struct LockLost;

pin_project! {
    /// Polls a handler while the lock is held, and gives the lock up when it ends.
    ///
    /// The handler comes first: whenever both are dropped, by a panic too, nothing of it runs without the lock.
    pub(super) struct UnderLock<F> {
        #[pin]
        handler: Option<F>,
        lost: Option<Pin<Box<dyn Future<Output = ()> + Send>>>,
        hold: Option<Hold>,
        cancel_on_loss: bool,
    }
}

impl<F> UnderLock<F> {
    pub(super) const fn new(handler: F, hold: Hold, cancel_on_loss: bool) -> Self {
        Self {
            handler: Some(handler),
            lost: None,
            hold: Some(hold),
            cancel_on_loss,
        }
    }
}

impl<F: Future> Future for UnderLock<F> {
    type Output = Result<F::Output, LockLost>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let mut this = self.project();
        let lost = *this.cancel_on_loss && this.hold.as_ref().is_some_and(Hold::is_lost);
        let output = if lost {
            Err(LockLost)
        } else {
            let Some(handler) = this.handler.as_mut().as_pin_mut() else {
                // Polled again after it was ready.
                return Poll::Pending;
            };
            match handler.poll(context) {
                Poll::Ready(output) => Ok(output),
                Poll::Pending => {
                    if *this.cancel_on_loss {
                        if this.lost.is_none() {
                            *this.lost = this.hold.as_ref().and_then(Hold::lost).map(|lost| Box::pin(lost) as _);
                        }
                        if let Some(lost) = this.lost {
                            ready!(lost.as_mut().poll(context));
                            Err(LockLost)
                        } else {
                            return Poll::Pending;
                        }
                    } else {
                        return Poll::Pending;
                    }
                }
            }
        };
        this.handler.set(None);
        *this.lost = None;
        *this.hold = None;
        Poll::Ready(output)
    }
}
