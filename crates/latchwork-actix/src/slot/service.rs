use std::{future::Future, pin::Pin, rc::Rc, sync::Arc};

use actix_web::{
    Error,
    body::{EitherBody, MessageBody},
    dev::{Service, ServiceRequest, ServiceResponse, forward_ready},
};
use latchwork_http::{PermitHold, Rejection, RejectionKind, ResponseFormat, SlotPolicy};
use tracing::debug;

use super::{HeldPermit, SlotBody};
use crate::{
    RequestHead,
    answer::{Stopped, refuse},
    run::{TaskEnded, run},
};

/// The service made by a [`SlotMiddleware`](super::SlotMiddleware).
///
/// Being ready is the inner service's affair, and reserves no slot.
#[derive(Debug)]
pub struct SlotService<S> {
    inner: Rc<S>,
    policy: Arc<SlotPolicy<RequestHead>>,
}

impl<S> SlotService<S> {
    pub(super) fn new(inner: S, policy: Arc<SlotPolicy<RequestHead>>) -> Self {
        let inner = Rc::new(inner);
        Self { inner, policy }
    }

    /// The inner service.
    #[must_use]
    pub fn get_ref(&self) -> &S {
        &self.inner
    }
}

impl<S, B> Service<ServiceRequest> for SlotService<S>
where
    S: Service<ServiceRequest, Response = ServiceResponse<B>, Error = Error> + 'static,
    B: MessageBody + 'static,
{
    type Response = ServiceResponse<EitherBody<SlotBody<B>>>;
    type Error = Error;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Error>>>>;

    forward_ready!(inner);

    fn call(&self, request: ServiceRequest) -> Self::Future {
        Box::pin(handle(Rc::clone(&self.inner), Arc::clone(&self.policy), request))
    }
}

async fn handle<S, B>(
    inner: Rc<S>,
    policy: Arc<SlotPolicy<RequestHead>>,
    request: ServiceRequest,
) -> Result<ServiceResponse<EitherBody<SlotBody<B>>>, Error>
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
        Ok(None) => return Ok(with_slot(inner.call(request).await?, None)),
        Err(rejection) => Err(rejection),
    };
    let permit = match answer {
        Ok(permit) => permit,
        Err(rejection) => {
            debug!(target: "latchwork::actix", kind = ?rejection.kind(), "a request did not get its slot");
            return Ok(refuse(request, &policy.respond(&rejection, format)));
        }
    };
    let hold = HeldPermit::put(permit, &request);
    // The handler is a part of the future, so it is dropped before what was moved into it.
    let work = async move { (inner.call(request).await, hold) };
    match run(work, policy.disconnect()).await {
        Ok((response, hold)) => Ok(with_slot(response?, Some(hold).filter(|_| !policy.ends_at_response()))),
        Err(TaskEnded) => {
            let response = policy.respond(&Rejection::new(RejectionKind::Unavailable), format);
            Err(Stopped::new("the runtime has ended the task of a request", response).into())
        }
    }
}

fn with_slot<B: MessageBody>(
    response: ServiceResponse<B>,
    hold: Option<PermitHold>,
) -> ServiceResponse<EitherBody<SlotBody<B>>> {
    response.map_body(|_, body| EitherBody::left(SlotBody::new(body, hold)))
}
