use std::{
    future::{Ready, ready},
    sync::Arc,
};

use actix_web::{
    Error,
    body::{EitherBody, MessageBody},
    dev::{Service, ServiceRequest, ServiceResponse, Transform},
};
use latchwork_http::{TxLockPolicy, TxProvider};

use crate::{PolicyService, RequestHead};

/// Gives each request a transaction that holds a key, so that what a request reads and writes is its own until it is
/// committed, whichever instance of the service others reach.
///
/// The transaction is begun and locked before the inner service is called, and ended before the response's headers
/// leave: COMMIT for 1xx, 2xx and 3xx, ROLLBACK for everything else, for a panic, and for a client that has left. The
/// lock goes with it, so there is no moment in between. The handler works on the transaction by
/// [`LockedTx`](crate::LockedTx). What a middleware inside ends with an error is rolled back, whatever status the error has.
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
/// use actix_web::{App, error::ErrorInternalServerError, web};
/// use latchwork_actix::{LockedTx, TxLockMiddleware, TxProvider, key::param};
///
/// async fn charge<P: TxProvider>(mut tx: LockedTx<P::Tx>) -> actix_web::Result<&'static str> {
///     let charge = "UPDATE orders SET total = total + 5 WHERE id = 42";
///     P::query(&mut tx, charge, &[]).await.map_err(ErrorInternalServerError)?;
///     Ok("charged")
/// }
///
/// fn app<P: TxProvider>(provider: P) -> Result<(), Box<dyn std::error::Error>> {
///     // Made once, and cloned into each worker's app.
///     let in_transaction = TxLockMiddleware::<P>::new(provider, ("order", param("id")))?;
///     let app = App::new().service(
///         web::resource("/orders/{id}/charge").wrap(in_transaction.clone()).route(web::post().to(charge::<P>)),
///     );
///     # drop(app);
///     Ok(())
/// }
/// ```
pub struct TxLockMiddleware<P> {
    /// Copied on write, so that all workers share one.
    policy: Arc<TxLockPolicy<RequestHead, P>>,
}

latchwork_http::__wear_tx_lock!(TxLockMiddleware, RequestHead);

impl<S, B, P> Transform<S, ServiceRequest> for TxLockMiddleware<P>
where
    S: Service<ServiceRequest, Response = ServiceResponse<B>, Error = Error> + 'static,
    B: MessageBody + 'static,
    P: TxProvider,
{
    type Response = ServiceResponse<EitherBody<B>>;
    type Error = Error;
    type Transform = PolicyService<S, TxLockPolicy<RequestHead, P>>;
    type InitError = ();
    type Future = Ready<Result<Self::Transform, Self::InitError>>;

    fn new_transform(&self, service: S) -> Self::Future {
        ready(Ok(PolicyService::new(service, Arc::clone(&self.policy))))
    }
}
