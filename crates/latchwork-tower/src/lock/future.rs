use std::{
    fmt,
    future::Future,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
};

use bytes::Bytes;
use http::{Request, Response};
use http_body::Body;
use latchwork_core::Guard;
use latchwork_http::{LockAttempt, LockLost, LockPolicy, Rejection, RejectionKind, ResponseFormat, UnderLock};
use pin_project_lite::pin_project;
use tower_service::Service;
use tracing::{debug, warn};

use super::HeldLock;
use crate::{
    PolicyBody, RequestHead,
    run::{Run, TaskEnded},
};

pin_project! {
    /// The future of a [`LockService`](super::LockService).
    ///
    /// # Cancel safety
    ///
    /// Dropping it while it waits for the lock leaves nothing held. Dropping it later drops the handler and then gives
    /// the lock up, or, with [`OnDisconnect::Complete`](crate::OnDisconnect::Complete), leaves the handler to its task.
    pub struct LockFuture<S, B>
    where
        S: Service<Request<B>>,
    {
        #[pin]
        state: State<S, B, S::Future>,
    }
}

pin_project! {
    #[project = StateProj]
    enum State<S, B, F>
    where
        F: Future,
    {
        Refused {
            response: Option<Response<Bytes>>,
        },
        Passes {
            #[pin]
            handler: F,
        },
        Acquires {
            attempt: LockAttempt,
            waiting: Option<Waiting<S, B>>,
        },
        Runs {
            #[pin]
            run: Run<UnderLock<F>>,
            terms: Terms,
        },
    }
}

/// A request that waits for its lock, with the service that is ready for it.
struct Waiting<S, B> {
    ready: S,
    head: RequestHead,
    body: B,
    terms: Terms,
}

struct Terms {
    policy: Arc<LockPolicy<RequestHead>>,
    format: ResponseFormat,
}

impl<S, B> LockFuture<S, B>
where
    S: Service<Request<B>>,
{
    pub(super) const fn refused(response: Response<Bytes>) -> Self {
        Self {
            state: State::Refused {
                response: Some(response),
            },
        }
    }

    pub(super) const fn passes(handler: S::Future) -> Self {
        Self {
            state: State::Passes { handler },
        }
    }

    pub(super) const fn acquires(
        attempt: LockAttempt,
        ready: S,
        head: RequestHead,
        body: B,
        policy: Arc<LockPolicy<RequestHead>>,
        format: ResponseFormat,
    ) -> Self {
        let terms = Terms { policy, format };
        let waiting = Some(Waiting {
            ready,
            head,
            body,
            terms,
        });
        Self {
            state: State::Acquires { attempt, waiting },
        }
    }
}

impl<S, B> Waiting<S, B>
where
    S: Service<Request<B>>,
    S::Future: Send + 'static,
    S::Response: Send + 'static,
    S::Error: Send + 'static,
{
    fn run(mut self, guard: Guard) -> State<S, B, S::Future> {
        let hold = HeldLock::put(guard, &mut self.head);
        let handler = self.ready.call(self.head.with_body(self.body));
        let policy = &self.terms.policy;
        let work = UnderLock::new(handler, hold, policy.cancels_on_loss());
        State::Runs {
            run: Run::new(work, policy.disconnect()),
            terms: self.terms,
        }
    }
}

impl Terms {
    fn refuse<R>(&self, rejection: &Rejection) -> Response<PolicyBody<R>> {
        PolicyBody::refusal(self.policy.respond(rejection, self.format))
    }
}

impl<S, B, R> Future for LockFuture<S, B>
where
    S: Service<Request<B>, Response = Response<R>>,
    S::Future: Send + 'static,
    S::Error: Send + 'static,
    R: Body + Send + 'static,
{
    type Output = Result<Response<PolicyBody<R>>, S::Error>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let mut state = self.project().state;
        loop {
            let next = match state.as_mut().project() {
                StateProj::Refused { response } => {
                    // Polled again after it was ready.
                    let Some(response) = response.take() else {
                        return Poll::Pending;
                    };
                    return Poll::Ready(Ok(PolicyBody::refusal(response)));
                }
                StateProj::Passes { handler } => return handler.poll(context).map_ok(PolicyBody::inner),
                StateProj::Acquires { attempt, waiting } => {
                    let answer = ready!(Pin::new(attempt).poll(context));
                    let Some(waiting) = waiting.take() else {
                        return Poll::Pending;
                    };
                    match answer {
                        Ok(guard) => waiting.run(guard),
                        Err(rejection) => {
                            debug!(target: "latchwork::tower", kind = ?rejection.kind(), "a request did not get its lock");
                            return Poll::Ready(Ok(waiting.terms.refuse(&rejection)));
                        }
                    }
                }
                StateProj::Runs { run, terms } => {
                    return Poll::Ready(match ready!(run.poll(context)) {
                        Ok(Ok(response)) => response.map(PolicyBody::inner),
                        Ok(Err(LockLost { .. })) => {
                            warn!(target: "latchwork::tower", "a lock was lost while its request was handled");
                            Ok(terms.refuse(&terms.policy.lost()))
                        }
                        Err(TaskEnded) => Ok(terms.refuse(&Rejection::new(RejectionKind::Unavailable))),
                    });
                }
            };
            state.set(next);
        }
    }
}

impl<S, B> fmt::Debug for LockFuture<S, B>
where
    S: Service<Request<B>>,
{
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LockFuture").finish_non_exhaustive()
    }
}
