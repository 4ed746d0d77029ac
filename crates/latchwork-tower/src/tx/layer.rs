use std::sync::Arc;

use latchwork_http::TxLockPolicy;
use tower_layer::Layer;

use super::TxLockService;
use crate::RequestHead;

/// Gives each request a transaction that holds a key, so that what a request reads and writes is its own until it is
/// committed, whichever instance of the service others reach.
///
/// The transaction is begun and locked before the inner service is called, and ended before the response's headers
/// leave: COMMIT for 1xx, 2xx and 3xx, ROLLBACK for everything else, for a panic, and for a client that has left. The
/// lock goes with it, so there is no moment in between. The handler works on the transaction by
/// [`LockedTx`](crate::LockedTx).
///
/// | what | answer |
/// |---|---|
/// | others hold the key | 409 with `Retry-After` |
/// | the database can't be reached or does not answer, or no connection comes free in time | 503, never 409; the handler does not run |
/// | the server refuses to commit, as for a deferred constraint, or has aborted the transaction | 500, and nothing is stored |
/// | the connection ends during COMMIT, or the handler has sent a COMMIT or ROLLBACK of its own | 500, which says that the outcome is not known |
/// | the handler has answered, but its transaction is still in use elsewhere | 500, and it is rolled back |
/// | the request has no usable key | 400 |
///
/// A gRPC call is committed unless the response's headers hold a `grpc-status` but 0, as those of a unary call that
/// failed do. A stream is committed before its first message.
///
/// `P` opens the transactions and names their type, `P::Tx`. With deadpool-postgres it is
/// `latchwork_postgres::transaction::DeadpoolTx`, which is made from a pool.
///
/// # Examples
///
/// ```
/// use axum::{Router, http::StatusCode, routing::post};
/// use latchwork_tower::{LockedTx, TxLockLayer, TxProvider, key::param};
///
/// async fn charge<P: TxProvider>(mut tx: LockedTx<P::Tx>) -> Result<(), StatusCode> {
///     let charge = "UPDATE orders SET total = total + 5 WHERE id = 42";
///     P::query(&mut tx, charge, &[]).await.map_err(|_| StatusCode::INTERNAL_SERVER_ERROR)?;
///     Ok(())
/// }
///
/// fn app<P: TxProvider>(provider: P) -> Result<Router, Box<dyn std::error::Error>> {
///     let in_transaction = TxLockLayer::<P>::new(provider, ("order", param("id")))?;
///     Ok(Router::new().route("/orders/{id}/charge", post(charge::<P>).layer(in_transaction)))
/// }
/// ```
pub struct TxLockLayer<P> {
    /// Copied on write, so that all services of a layer share one.
    policy: Arc<TxLockPolicy<RequestHead, P>>,
}

latchwork_http::__wear_tx_lock!(TxLockLayer, RequestHead);

impl<S, P> Layer<S> for TxLockLayer<P> {
    type Service = TxLockService<S, P>;

    fn layer(&self, inner: S) -> Self::Service {
        TxLockService::new(inner, Arc::clone(&self.policy))
    }
}
