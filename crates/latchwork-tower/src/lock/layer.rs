use std::sync::Arc;

use latchwork_http::LockPolicy;
use tower_layer::Layer;

use super::LockService;
use crate::RequestHead;

/// Holds a key while a request is handled, so that requests for one key do not run at the same time, whichever
/// instance of the service they reach.
///
/// The key is acquired before the inner service is called, and given up when the inner service's future ends: done,
/// panicked, or dropped because the client has left. The response waits, for at most a second, until the lock server has
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
/// While the connection to the lock server is only in doubt the handler runs on, and can ask whether it may go ahead: it
/// finds a [`HeldLock`](crate::HeldLock) in the request's extensions.
///
/// # Examples
///
/// ```
/// use std::time::Duration;
/// use axum::{Router, routing::post};
/// use latchwork_core::Locks;
/// use latchwork_tower::{LockLayer, key::param};
///
/// # fn app(locks: Locks) -> Result<Router, Box<dyn std::error::Error>> {
/// let one_at_a_time = LockLayer::new(locks, ("order", param("id")))?.wait(Duration::from_millis(500));
/// let app = Router::new().route("/orders/{id}/charge", post(|| async {}).layer(one_at_a_time));
/// # Ok(app)
/// # }
/// # app(Locks::in_memory()).unwrap();
/// ```
#[derive(Clone, Debug)]
pub struct LockLayer {
    /// Copied on write, so that all services of a layer share one.
    policy: Arc<LockPolicy<RequestHead>>,
}

latchwork_http::__wear_lock!(LockLayer, RequestHead);

impl<S> Layer<S> for LockLayer {
    type Service = LockService<S>;

    fn layer(&self, inner: S) -> Self::Service {
        LockService::new(inner, Arc::clone(&self.policy))
    }
}
