use std::{
    fmt,
    future::Future,
    mem::take,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
};

use bytes::Bytes;
use http::{HeaderName, HeaderValue, Request, Response};
use http_body::Body;
use latchwork_http::{RateLimitPolicy, ResponseFormat, rate::RateCheck};
use pin_project_lite::pin_project;
use tower_service::Service;

use super::RateLimitLayer;
use crate::{
    PolicyBody, RequestHead,
    inner::{inner_accessors, take_ready},
};

/// What [`RateLimitLayer`] makes of a service.
#[derive(Clone, Debug)]
pub struct RateLimitService<S> {
    inner: S,
    policy: Arc<RateLimitPolicy<RequestHead>>,
}

impl<S> RateLimitService<S> {
    pub(super) const fn new(inner: S, policy: Arc<RateLimitPolicy<RequestHead>>) -> Self {
        Self { inner, policy }
    }

    /// The layer that makes services like this one.
    #[must_use]
    pub fn layer(&self) -> RateLimitLayer {
        RateLimitLayer::from((*self.policy).clone())
    }

    inner_accessors!();
}

impl<S, B, R> Service<Request<B>> for RateLimitService<S>
where
    S: Service<Request<B>, Response = Response<R>> + Clone,
    R: Body,
    R::Data: From<Bytes>,
{
    type Response = Response<PolicyBody<R>>;
    type Error = S::Error;
    type Future = RateLimitFuture<S, B>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        self.inner.poll_ready(context)
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        let mut ready = take_ready(&mut self.inner);
        let (head, body) = RequestHead::of(request);
        let format = ResponseFormat::of(&head);
        let state = match self.policy.check(&head) {
            Ok(Some(check)) => State::Checks {
                check,
                waiting: Some(Waiting {
                    ready,
                    head,
                    body,
                    policy: Arc::clone(&self.policy),
                    format,
                }),
            },
            Ok(None) => State::Runs {
                handler: ready.call(head.with_body(body)),
                headers: Vec::new(),
            },
            Err(rejection) => State::Refused {
                response: Some(self.policy.respond(&rejection, format)),
            },
        };
        RateLimitFuture { state }
    }
}

pin_project! {
    /// The answer to a request that is charged first.
    #[must_use = "futures do nothing unless awaited"]
    pub struct RateLimitFuture<S, B>
    where
        S: Service<Request<B>>,
    {
        #[pin]
        state: State<S, B, S::Future>,
    }
}

pin_project! {
    #[project = StateProj]
    enum State<S, B, F> {
        Refused {
            response: Option<Response<Bytes>>,
        },
        Checks {
            check: RateCheck,
            waiting: Option<Waiting<S, B>>,
        },
        Runs {
            #[pin]
            handler: F,
            headers: Headers,
        },
    }
}

type Headers = Vec<(HeaderName, HeaderValue)>;

/// A request that is not charged yet.
struct Waiting<S, B> {
    ready: S,
    head: RequestHead,
    body: B,
    policy: Arc<RateLimitPolicy<RequestHead>>,
    format: ResponseFormat,
}

impl<S, B, R> Future for RateLimitFuture<S, B>
where
    S: Service<Request<B>, Response = Response<R>>,
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
                StateProj::Checks { check, waiting } => {
                    let verdict = ready!(Pin::new(check).poll(context));
                    let Some(mut waiting) = waiting.take() else {
                        return Poll::Pending;
                    };
                    if let Some(rejection) = &verdict.rejection {
                        let mut response = waiting.policy.respond(rejection, waiting.format);
                        add(&mut response, verdict.headers);
                        return Poll::Ready(Ok(PolicyBody::refusal(response)));
                    }
                    if let Some(decision) = verdict.decision {
                        waiting.head.insert(decision);
                    }
                    State::Runs {
                        handler: waiting.ready.call(waiting.head.with_body(waiting.body)),
                        headers: verdict.headers,
                    }
                }
                StateProj::Runs { handler, headers } => {
                    let response = ready!(handler.poll(context));
                    return Poll::Ready(response.map(|mut response| {
                        add(&mut response, take(headers));
                        PolicyBody::inner(response)
                    }));
                }
            };
            state.set(next);
        }
    }
}

/// Adds headers to those that inner layers have set.
fn add<R>(response: &mut Response<R>, headers: Headers) {
    for (name, value) in headers {
        response.headers_mut().append(name, value);
    }
}

impl<S, B> fmt::Debug for RateLimitFuture<S, B>
where
    S: Service<Request<B>>,
{
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RateLimitFuture").finish_non_exhaustive()
    }
}
