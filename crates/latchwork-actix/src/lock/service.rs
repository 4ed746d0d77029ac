use std::{future::Future, pin::Pin, rc::Rc, sync::Arc};

use actix_web::{
    Error,
    body::{EitherBody, MessageBody},
    dev::{Service, ServiceRequest, ServiceResponse, forward_ready},
};
use latchwork_http::{LockLost, LockPolicy, Rejection, RejectionKind, ResponseFormat, UnderLock};
use tracing::{debug, warn};

use super::HeldLock;
use crate::{
    RequestHead,
    answer::{Stopped, refuse},
    run::{TaskEnded, run},
};

/// The service made by a [`LockMiddleware`](super::LockMiddleware).
///
/// Being ready is the inner service's affair, and reserves no lock.
#[derive(Debug)]
pub struct LockService<S> {
    inner: Rc<S>,
    policy: Arc<LockPolicy<RequestHead>>,
}

impl<S> LockService<S> {
    pub(super) fn new(inner: S, policy: Arc<LockPolicy<RequestHead>>) -> Self {
        let inner = Rc::new(inner);
        Self { inner, policy }
    }

    /// The inner service.
    #[must_use]
    pub fn get_ref(&self) -> &S {
        &self.inner
    }
}

impl<S, B> Service<ServiceRequest> for LockService<S>
where
    S: Service<ServiceRequest, Response = ServiceResponse<B>, Error = Error> + 'static,
    B: MessageBody + 'static,
{
    type Response = ServiceResponse<EitherBody<B>>;
    type Error = Error;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Error>>>>;

    forward_ready!(inner);

    fn call(&self, request: ServiceRequest) -> Self::Future {
        Box::pin(handle(Rc::clone(&self.inner), Arc::clone(&self.policy), request))
    }
}

async fn handle<S, B>(
    inner: Rc<S>,
    policy: Arc<LockPolicy<RequestHead>>,
    request: ServiceRequest,
) -> Result<ServiceResponse<EitherBody<B>>, Error>
where
    S: Service<ServiceRequest, Response = ServiceResponse<B>, Error = Error> + 'static,
    B: MessageBody + 'static,
{
    let head = RequestHead::of(&request);
    let format = ResponseFormat::of(&head);
    let attempt = policy.attempt(&head);
    drop(head);
    let answer = match attempt {
        Ok(Some(attempt)) => attempt.await,
        Ok(None) => return Ok(inner.call(request).await?.map_into_left_body()),
        Err(rejection) => Err(rejection),
    };
    let guard = match answer {
        Ok(guard) => guard,
        Err(rejection) => {
            debug!(target: "latchwork::actix", kind = ?rejection.kind(), "a request did not get its lock");
            return Ok(refuse(request, &policy.respond(&rejection, format)));
        }
    };
    let hold = HeldLock::put(guard, &request);
    let work = UnderLock::new(inner.call(request), hold, policy.cancels_on_loss());
    match run(work, policy.disconnect()).await {
        Ok(Ok(response)) => Ok(response?.map_into_left_body()),
        Ok(Err(LockLost { .. })) => {
            warn!(target: "latchwork::actix", "a lock was lost while its request was handled");
            let response = policy.respond(&policy.lost(), format);
            Err(Stopped::new("a lock was lost while its request was handled", response).into())
        }
        Err(TaskEnded) => {
            let response = policy.respond(&Rejection::new(RejectionKind::Unavailable), format);
            Err(Stopped::new("the runtime has ended the task of a request", response).into())
        }
    }
}
