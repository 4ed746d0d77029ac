//! A handler in its transaction.

use std::{
    future::Future,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
};

use http::Response;
use latchwork_http::{
    ResponseView, TxLockPolicy, TxProvider,
    tx::{OpenTx, TxEnd},
};
use pin_project_lite::pin_project;

use crate::{
    RequestHead,
    admission::{Outcome, Under},
};

type Policy<P> = TxLockPolicy<RequestHead, P>;

pin_project! {
    /// Polls a handler, and then ends its transaction as the response says. The output waits for the server's word.
    ///
    /// The handler comes first: whenever both are dropped, by a panic too, it has given the transaction back before
    /// that is rolled back.
    pub(super) struct InTx<F, P>
    where
        F: Future,
        P: TxProvider,
    {
        #[pin]
        handler: Option<F>,
        open: Option<OpenTx<P>>,
        policy: Arc<Policy<P>>,
        output: Option<F::Output>,
        end: Option<TxEnd>,
    }
}

impl<F: Future, P: TxProvider> Under<Policy<P>, F> for InTx<F, P> {
    fn new(handler: F, open: OpenTx<P>, policy: &Arc<Policy<P>>) -> Self {
        Self {
            handler: Some(handler),
            open: Some(open),
            policy: Arc::clone(policy),
            output: None,
            end: None,
        }
    }
}

impl<F, P, R, E> Future for InTx<F, P>
where
    F: Future<Output = Result<Response<R>, E>>,
    P: TxProvider,
{
    type Output = Outcome<Policy<P>, Response<R>, E>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let mut this = self.project();
        if let Some(handler) = this.handler.as_mut().as_pin_mut() {
            let output = ready!(handler.poll(context));
            this.handler.set(None);
            let response = output.as_ref().ok().map(|response| response as &dyn ResponseView);
            *this.end = this.open.take().map(|open| this.policy.end(open, response));
            *this.output = Some(output);
        }
        // Polled again after it was ready.
        let Some(end) = this.end else {
            return Poll::Pending;
        };
        let ended = ready!(Pin::new(end).poll(context));
        *this.end = None;
        let Some(output) = this.output.take() else {
            return Poll::Pending;
        };
        Poll::Ready(match (output, ended) {
            (Ok(_), Err(rejection)) => Err(rejection),
            (Ok(response), Ok(())) => Ok(Ok((response, ()))),
            (Err(error), _) => Ok(Err(error)),
        })
    }
}
