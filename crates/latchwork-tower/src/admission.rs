//! The future of every layer that lets a request in, and runs its handler under what it was given.

use std::{
    future::Future,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
};

use bytes::Bytes;
use http::{Request, Response};
use latchwork_http::{OnDisconnect, Rejection, RejectionKind, ResponseFormat};
use pin_project_lite::pin_project;
use tower_service::Service;
use tracing::debug;

use crate::{
    PolicyBody, RequestHead,
    inner::take_ready,
    run::{Run, TaskEnded},
};

/// A policy that lets requests in.
pub(crate) trait Admission: Send + Sync + 'static {
    /// What a request is given, such as a guard.
    type Grant;
    type Attempt: Future<Output = Result<Self::Grant, Rejection>> + Unpin;
    /// What its handler runs under.
    type Hold;
    /// What the response's body takes along.
    type Rest;

    fn attempt(&self, head: &RequestHead) -> Result<Option<Self::Attempt>, Rejection>;

    /// Shows the handler what it is given.
    fn admit(&self, grant: Self::Grant, head: &mut RequestHead) -> Self::Hold;

    fn disconnect(&self) -> OnDisconnect;

    fn respond(&self, rejection: &Rejection, format: ResponseFormat) -> Response<Bytes>;
}

/// A handler under what it was given.
pub(crate) trait Under<A: Admission, F> {
    fn new(handler: F, hold: A::Hold, policy: &Arc<A>) -> Self;
}

/// What comes of a handler: its response or error, or a rejection that is answered instead.
pub(crate) type Outcome<A, R, E> = Result<Result<(R, <A as Admission>::Rest), E>, Rejection>;

/// A body that may be ours, and takes along what is left of the request's hold.
pub(crate) trait Carries<R, H> {
    fn new(body: PolicyBody<R>, rest: Option<H>) -> Self;
}

impl<R> Carries<R, ()> for PolicyBody<R> {
    fn new(body: Self, _: Option<()>) -> Self {
        body
    }
}

pin_project! {
    pub(crate) struct Admitted<A, S, B, W>
    where
        A: Admission,
        S: Service<Request<B>>,
    {
        #[pin]
        state: State<A, S, B, S::Future, W, Outcome<A, S::Response, S::Error>>,
    }
}

pin_project! {
    #[project = StateProj]
    enum State<A, S, B, F, W, O>
    where
        A: Admission,
    {
        Refused {
            response: Option<Response<Bytes>>,
        },
        Passes {
            #[pin]
            handler: F,
        },
        Acquires {
            attempt: A::Attempt,
            waiting: Option<Waiting<A, S, B>>,
        },
        Runs {
            #[pin]
            run: Run<W, O>,
            terms: Terms<A>,
        },
    }
}

/// A request that waits to be let in, with the service that is ready for it.
struct Waiting<A, S, B> {
    ready: S,
    head: RequestHead,
    body: B,
    terms: Terms<A>,
}

struct Terms<A> {
    policy: Arc<A>,
    format: ResponseFormat,
}

impl<A, S, B, W> Admitted<A, S, B, W>
where
    A: Admission,
    S: Service<Request<B>>,
{
    /// Calls a service that is ready, and leaves a clone that is not in its place.
    pub(crate) fn call(inner: &mut S, policy: &Arc<A>, request: Request<B>) -> Self
    where
        S: Clone,
    {
        let mut ready = take_ready(inner);
        let (head, body) = RequestHead::of(request);
        let format = ResponseFormat::of(&head);
        let state = match policy.attempt(&head) {
            Ok(Some(attempt)) => {
                let policy = Arc::clone(policy);
                let terms = Terms { policy, format };
                let waiting = Some(Waiting {
                    ready,
                    head,
                    body,
                    terms,
                });
                State::Acquires { attempt, waiting }
            }
            Ok(None) => State::Passes {
                handler: ready.call(head.with_body(body)),
            },
            Err(rejection) => State::Refused {
                response: Some(policy.respond(&rejection, format)),
            },
        };
        Self { state }
    }
}

impl<A, S, B> Waiting<A, S, B>
where
    A: Admission,
    S: Service<Request<B>>,
{
    fn run<W, O>(mut self, grant: A::Grant) -> State<A, S, B, S::Future, W, O>
    where
        W: Under<A, S::Future> + Future<Output = O> + Send + 'static,
        O: Send + 'static,
    {
        let policy = &self.terms.policy;
        let hold = policy.admit(grant, &mut self.head);
        let handler = self.ready.call(self.head.with_body(self.body));
        let work = W::new(handler, hold, policy);
        State::Runs {
            run: Run::new(work, policy.disconnect()),
            terms: self.terms,
        }
    }
}

impl<A: Admission> Terms<A> {
    fn refuse<R, T: Carries<R, A::Rest>>(&self, rejection: &Rejection) -> Response<T> {
        free(PolicyBody::refusal(self.policy.respond(rejection, self.format)))
    }
}

fn free<R, H, T: Carries<R, H>>(response: Response<PolicyBody<R>>) -> Response<T> {
    response.map(|body| T::new(body, None))
}

impl<A, S, B, W> Admitted<A, S, B, W>
where
    A: Admission,
    S: Service<Request<B>>,
{
    /// As a future's, for any body that the response shall have.
    pub(crate) fn poll<R, T>(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Result<Response<T>, S::Error>>
    where
        S: Service<Request<B>, Response = Response<R>>,
        S::Error: Send + 'static,
        W: Under<A, S::Future> + Future<Output = Outcome<A, Response<R>, S::Error>> + Send + 'static,
        A::Rest: Send,
        R: Send + 'static,
        T: Carries<R, A::Rest>,
    {
        let mut state = self.project().state;
        loop {
            let next = match state.as_mut().project() {
                StateProj::Refused { response } => {
                    // Polled again after it was ready.
                    let Some(response) = response.take() else {
                        return Poll::Pending;
                    };
                    return Poll::Ready(Ok(free::<_, A::Rest, _>(PolicyBody::refusal(response))));
                }
                StateProj::Passes { handler } => {
                    let answer = ready!(handler.poll(context));
                    return Poll::Ready(answer.map(|response| free::<_, A::Rest, _>(PolicyBody::inner(response))));
                }
                StateProj::Acquires { attempt, waiting } => {
                    let answer = ready!(Pin::new(attempt).poll(context));
                    let Some(waiting) = waiting.take() else {
                        return Poll::Pending;
                    };
                    match answer {
                        Ok(grant) => waiting.run(grant),
                        Err(rejection) => {
                            debug!(target: "latchwork::tower", kind = ?rejection.kind(), "a request was not let in");
                            return Poll::Ready(Ok(waiting.terms.refuse(&rejection)));
                        }
                    }
                }
                StateProj::Runs { run, terms } => {
                    let rejection = match ready!(run.poll(context)) {
                        Ok(Ok(answer)) => {
                            return Poll::Ready(answer.map(|(response, rest)| {
                                PolicyBody::inner(response).map(|body| T::new(body, Some(rest)))
                            }));
                        }
                        Ok(Err(rejection)) => rejection,
                        Err(TaskEnded) => Rejection::new(RejectionKind::Unavailable),
                    };
                    return Poll::Ready(Ok(terms.refuse(&rejection)));
                }
            };
            state.set(next);
        }
    }
}
