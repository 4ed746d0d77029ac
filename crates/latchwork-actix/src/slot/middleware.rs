use std::{
    future::{Ready, ready},
    sync::Arc,
};

use actix_web::{
    Error,
    body::{EitherBody, MessageBody},
    dev::{Service, ServiceRequest, ServiceResponse, Transform},
};
use latchwork_http::SlotPolicy;

use super::SlotBody;
use crate::{PolicyService, RequestHead};

/// Lets at most so many requests in at once, over all instances of the service.
///
/// A request keeps its slot until its response's body was sent, has failed, or was dropped, so that a streamed answer
/// counts while it streams. A handler that goes on elsewhere, as with a socket, takes the permit with it: see
/// the extractor [`HeldPermit`](crate::HeldPermit).
///
/// | what | answer |
/// |---|---|
/// | all slots are taken | 503 for [`global`](Self::global), 429 for [`per`](Self::per), with `Retry-After` |
/// | the lock server can't be reached or does not answer | 503, never 429 |
/// | the request has no usable key | 400 |
///
/// Slots are a limit on load, not on who may write: a request whose slot is lost with its session runs on, and so
/// there can be more than the limit for a while. Use [`LockMiddleware`](crate::LockMiddleware) where that must not be.
///
/// # Examples
///
/// ```
/// use actix_web::{App, web};
/// use latchwork_actix::{SlotMiddleware, key::header};
/// use latchwork_core::Locks;
///
/// # fn app(locks: Locks) -> Result<(), Box<dyn std::error::Error>> {
/// // Made once, and cloned into each worker's app.
/// let five_in_all = SlotMiddleware::global(locks.slots("ai", 5)?);
/// let two_a_client = SlotMiddleware::per(locks, ("ai client", header("x-api-key")), 2)?;
/// // The outermost last: the client's own limit is looked at before the common one.
/// let app = App::new().service(
///     web::resource("/ai")
///         .wrap(five_in_all.clone())
///         .wrap(two_a_client.clone())
///         .route(web::get().to(|| async { "slow" })),
/// );
/// # drop(app);
/// # Ok(())
/// # }
/// # app(Locks::in_memory()).unwrap();
/// ```
#[derive(Clone, Debug)]
pub struct SlotMiddleware {
    policy: Arc<SlotPolicy<RequestHead>>,
}

latchwork_http::__wear_slot!(SlotMiddleware, RequestHead);

impl<S, B> Transform<S, ServiceRequest> for SlotMiddleware
where
    S: Service<ServiceRequest, Response = ServiceResponse<B>, Error = Error> + 'static,
    B: MessageBody + 'static,
{
    type Response = ServiceResponse<EitherBody<SlotBody<B>>>;
    type Error = Error;
    type Transform = PolicyService<S, SlotPolicy<RequestHead>>;
    type InitError = ();
    type Future = Ready<Result<Self::Transform, Self::InitError>>;

    fn new_transform(&self, service: S) -> Self::Future {
        ready(Ok(PolicyService::new(service, Arc::clone(&self.policy))))
    }
}
