use std::{
    future::{Ready, ready},
    sync::Arc,
};

use actix_web::{
    Error,
    body::{EitherBody, MessageBody},
    dev::{Service, ServiceRequest, ServiceResponse, Transform},
};
use latchwork_http::LockPolicy;

use crate::{PolicyService, RequestHead};

/// Holds a key while a request is handled, so that requests for one key do not run at the same time, whichever
/// instance of the service they reach.
///
/// The key is acquired before the inner service is called, and given up when the inner service's future ends: done,
/// panicked, or dropped because the client has left, which actix-web does not always see at once: see
/// [`OnDisconnect`](crate::OnDisconnect). The response waits, for at most a second, until the lock server has
/// said that the key is free: a client that goes on to another instance is not kept out by its own last request. The
/// response's body is sent without the lock.
///
/// | what | answer |
/// |---|---|
/// | others hold the key | 409 with `Retry-After` |
/// | the lock server can't be reached or does not answer | 503, never 409 |
/// | the lock is lost while the handler runs | the handler is cancelled, 503 |
/// | the request has no usable key | 400 |
///
/// Refusals are responses, so that middleware outside, such as CORS, sees and changes them. Only for a lock that is lost
/// it is an error that answers with 503, since the request went with its handler.
///
/// While the connection to the lock server is only in doubt the handler runs on, and can ask whether it may go ahead: it
/// has the extractor [`HeldLock`](crate::HeldLock).
///
/// # Examples
///
/// ```
/// use std::time::Duration;
/// use actix_web::{App, web};
/// use latchwork_actix::{LockMiddleware, key::param};
/// use latchwork_core::Locks;
///
/// # fn app(locks: Locks) -> Result<(), Box<dyn std::error::Error>> {
/// // Made once, and cloned into each worker's app.
/// let one_at_a_time = LockMiddleware::new(locks, ("order", param("id")))?.wait(Duration::from_millis(500));
/// let app = App::new().service(
///     web::resource("/orders/{id}/charge").wrap(one_at_a_time.clone()).route(web::post().to(|| async { "charged" })),
/// );
/// # drop(app);
/// # Ok(())
/// # }
/// # app(Locks::in_memory()).unwrap();
/// ```
#[derive(Clone, Debug)]
pub struct LockMiddleware {
    /// Copied on write, so that all workers share one.
    policy: Arc<LockPolicy<RequestHead>>,
}

latchwork_http::__wear_lock!(LockMiddleware, RequestHead);

impl<S, B> Transform<S, ServiceRequest> for LockMiddleware
where
    S: Service<ServiceRequest, Response = ServiceResponse<B>, Error = Error> + 'static,
    B: MessageBody + 'static,
{
    type Response = ServiceResponse<EitherBody<B>>;
    type Error = Error;
    type Transform = PolicyService<S, LockPolicy<RequestHead>>;
    type InitError = ();
    type Future = Ready<Result<Self::Transform, Self::InitError>>;

    fn new_transform(&self, service: S) -> Self::Future {
        ready(Ok(PolicyService::new(service, Arc::clone(&self.policy))))
    }
}
