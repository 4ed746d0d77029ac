//! One service for all policies.

use std::{fmt, future::Future, pin::Pin, rc::Rc, sync::Arc};

use actix_web::{
    Error,
    body::{EitherBody, MessageBody},
    dev::{Service, ServiceRequest, ServiceResponse, forward_ready},
};
use bytes::Bytes;
use http::Response;
use latchwork_http::{Rejection, RejectionKind, ResponseFormat};
use tracing::debug;

use crate::{
    RequestHead,
    answer::{Stopped, refuse},
};

/// The service that a middleware makes: a policy around what was wrapped.
///
/// Being ready is the inner service's affair, and reserves nothing.
#[derive(Debug)]
pub struct PolicyService<S, P> {
    inner: Rc<S>,
    policy: Arc<P>,
}

impl<S, P> PolicyService<S, P> {
    pub(crate) fn new(inner: S, policy: Arc<P>) -> Self {
        let inner = Rc::new(inner);
        Self { inner, policy }
    }

    /// The inner service.
    #[must_use]
    pub fn get_ref(&self) -> &S {
        &self.inner
    }
}

impl<S, B, P> Service<ServiceRequest> for PolicyService<S, P>
where
    S: Service<ServiceRequest, Response = ServiceResponse<B>, Error = Error> + 'static,
    B: MessageBody + 'static,
    P: RequestPolicy,
{
    type Response = ServiceResponse<EitherBody<P::Body<B>>>;
    type Error = Error;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Error>>>>;

    forward_ready!(inner);

    fn call(&self, request: ServiceRequest) -> Self::Future {
        Box::pin(handle(Rc::clone(&self.inner), Arc::clone(&self.policy), request))
    }
}

async fn handle<S, B, P>(
    inner: Rc<S>,
    policy: Arc<P>,
    request: ServiceRequest,
) -> Result<ServiceResponse<EitherBody<P::Body<B>>>, Error>
where
    S: Service<ServiceRequest, Response = ServiceResponse<B>, Error = Error> + 'static,
    B: MessageBody + 'static,
    P: RequestPolicy,
{
    let head = RequestHead::of(&request);
    let format = ResponseFormat::of(&head);
    let attempt = policy.attempt(&head);
    drop(head);
    let answer = match attempt {
        Ok(Some(attempt)) => attempt.await,
        Ok(None) => {
            let response = inner.call(request).await?;
            return Ok(response.map_body(|_, body| EitherBody::left(P::pass(body))));
        }
        Err(rejection) => Err(rejection),
    };
    match answer {
        Ok(grant) => policy.run(grant, inner, request, format).await,
        Err(rejection) => {
            debug!(target: "latchwork::actix", kind = ?rejection.kind(), "a request was not let in");
            Ok(refuse(request, &policy.respond(&rejection, format)))
        }
    }
}

/// What a policy does with a request.
///
/// The trait is sealed: it is implemented by the policies of `latchwork-http`.
pub trait RequestPolicy: sealed::Sealed + fmt::Debug + Sized + 'static {
    /// What lets a request in.
    #[doc(hidden)]
    type Grant;

    /// The body of a response whose handler answers with a `B`.
    type Body<B: MessageBody + 'static>: MessageBody + 'static;

    /// Begins to let a request in; `None` if the policy leaves it alone.
    #[doc(hidden)]
    fn attempt(
        &self,
        head: &RequestHead,
    ) -> Result<Option<impl Future<Output = Result<Self::Grant, Rejection>> + 'static>, Rejection>;

    /// The body of a response to a request that is left alone.
    #[doc(hidden)]
    fn pass<B: MessageBody + 'static>(body: B) -> Self::Body<B>;

    /// Has a request handled that was let in.
    #[doc(hidden)]
    fn run<S, B>(
        self: Arc<Self>,
        grant: Self::Grant,
        inner: Rc<S>,
        request: ServiceRequest,
        format: ResponseFormat,
    ) -> impl Future<Output = Result<ServiceResponse<EitherBody<Self::Body<B>>>, Error>>
    where
        S: Service<ServiceRequest, Response = ServiceResponse<B>, Error = Error> + 'static,
        B: MessageBody + 'static;

    /// The answer to a request that is refused.
    #[doc(hidden)]
    fn respond(&self, rejection: &Rejection, format: ResponseFormat) -> Response<Bytes>;

    /// The answer when the runtime has ended the task of a handler.
    #[doc(hidden)]
    fn task_ended(&self, format: ResponseFormat) -> Error {
        let response = self.respond(&Rejection::new(RejectionKind::Unavailable), format);
        Stopped::new("the runtime has ended the task of a request", response).into()
    }
}

pub(crate) mod sealed {
    #[expect(unnameable_types, reason = "the seal of a trait")]
    pub trait Sealed {}
}
