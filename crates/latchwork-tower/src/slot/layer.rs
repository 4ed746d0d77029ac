use std::sync::Arc;

use latchwork_http::SlotPolicy;
use tower_layer::Layer;

use super::SlotService;
use crate::RequestHead;

/// Lets at most so many requests in at once, over all instances of the service.
///
/// A request keeps its slot until its response's body was sent, has failed, or was dropped, so that a streamed answer
/// counts while it streams. A handler that goes on elsewhere, as with a socket, takes the permit with it: see
/// [`HeldPermit`](crate::HeldPermit), which it finds in the request's extensions.
///
/// | what | answer |
/// |---|---|
/// | all slots are taken | 503 for [`global`](Self::global), 429 for [`per`](Self::per), with `Retry-After` |
/// | the lock server can't be reached or does not answer | 503, never 429 |
/// | the request has no usable key | 400 |
///
/// Slots are a limit on load, not on who may write: a request whose slot is lost with its session runs on, and so
/// there can be more than the limit for a while. Use [`LockLayer`](crate::LockLayer) where that must not be.
///
/// # Examples
///
/// ```
/// use axum::{Router, routing::get};
/// use latchwork_core::Locks;
/// use latchwork_tower::{SlotLayer, key::header};
///
/// # fn app(locks: Locks) -> Result<Router, Box<dyn std::error::Error>> {
/// let five_in_all = SlotLayer::global(locks.slots("ai", 5)?);
/// let two_a_client = SlotLayer::per(locks, ("ai client", header("x-api-key")), 2)?;
/// // The outermost first: the client's own limit is looked at before the common one.
/// let app = Router::new().route("/ai", get(|| async { "slow" }).layer((two_a_client, five_in_all)));
/// # Ok(app)
/// # }
/// # app(Locks::in_memory()).unwrap();
/// ```
#[derive(Clone, Debug)]
pub struct SlotLayer {
    policy: Arc<SlotPolicy<RequestHead>>,
}

latchwork_http::__wear_slot!(SlotLayer, RequestHead);

impl<S> Layer<S> for SlotLayer {
    type Service = SlotService<S>;

    fn layer(&self, inner: S) -> Self::Service {
        SlotService::new(inner, Arc::clone(&self.policy))
    }
}
