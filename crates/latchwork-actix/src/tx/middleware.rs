use std::{
    fmt,
    future::{Ready, ready},
    sync::Arc,
    time::Duration,
};

use actix_web::{
    Error,
    body::{EitherBody, MessageBody},
    dev::{Service, ServiceRequest, ServiceResponse, Transform},
};
use bytes::Bytes;
use http::Response;
use latchwork_core::Namespace;
use latchwork_http::{
    ExtractKey, LockMode, OnDisconnect, Rejection, ResponseView, SetupError, TxLockPolicy, TxProvider,
};

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

impl<P: TxProvider> TxLockMiddleware<P> {
    /// A transaction that has tried once for an exclusive lock on the key that is extracted from each request: see
    /// [`key`](crate::key).
    ///
    /// # Errors
    ///
    /// [`SetupError`] if the extractor can never work.
    pub fn new(provider: impl Into<P>, key: impl ExtractKey<RequestHead>) -> Result<Self, SetupError> {
        TxLockPolicy::new(provider, key).map(Self::from)
    }

    /// Takes names in this namespace. Default: the unnamed one. Locks of session scope in the same namespace and
    /// database, such as [`LockMiddleware`](crate::LockMiddleware)'s, exclude those of this middleware, and the other way round.
    #[must_use]
    pub fn namespace(self, namespace: Namespace) -> Self {
        self.map(|policy| policy.namespace(namespace))
    }

    /// Sets how requests hold the key. Default: exclusive.
    #[must_use]
    pub fn mode(self, mode: LockMode) -> Self {
        self.map(|policy| policy.mode(mode))
    }

    /// Waits for a key that others hold, for at most `limit`. Default: one try. Each request that waits has a
    /// connection of the pool meanwhile.
    #[must_use]
    pub fn wait(self, limit: Duration) -> Self {
        self.map(|policy| policy.wait(limit))
    }

    /// Sets how long the database may take over anything but that wait: a connection from the pool, BEGIN, COMMIT. A
    /// request whose transaction does not begin in time is answered with 503. Default: 5 s.
    #[must_use]
    pub fn answer_within(self, limit: Duration) -> Self {
        self.map(|policy| policy.answer_within(limit))
    }

    /// Sets which responses commit; the others roll back. Default: [`ends_well`](super::ends_well).
    #[must_use]
    pub fn commit_when(self, commits: impl Fn(&dyn ResponseView) -> bool + Send + Sync + 'static) -> Self {
        self.map(|policy| policy.commit_when(commits))
    }

    /// Rolls back whatever the response says, as for a dry run.
    #[must_use]
    pub fn rollback_only(self) -> Self {
        self.map(TxLockPolicy::rollback_only)
    }

    /// Takes the lock in the transaction that a middleware outside has opened for the request, instead of opening another on
    /// a second connection. Its end is the outer middleware's: a response that does not commit here has it rolled back.
    ///
    /// A request without such a transaction, of this provider's type, is answered with 500. Both middlewares have to be of
    /// one database. A wait tries again every 25 ms.
    #[must_use]
    pub fn join_open(self) -> Self {
        self.map(TxLockPolicy::join_open)
    }

    /// Sets what becomes of a handler whose client leaves. Default: it is cancelled, and its transaction rolled back.
    #[must_use]
    pub fn on_disconnect(self, on_disconnect: OnDisconnect) -> Self {
        self.map(|policy| policy.on_disconnect(on_disconnect))
    }

    /// Sets after how long those who are refused may ask again. Default: 1 s. The header holds whole seconds.
    #[must_use]
    pub fn retry_after(self, after: Duration) -> Self {
        self.map(|policy| policy.retry_after(after))
    }

    /// Opens transactions for CORS preflights too. Default: they pass without one.
    #[must_use]
    pub fn include_preflights(self) -> Self {
        self.map(TxLockPolicy::include_preflights)
    }

    /// Replaces the answers to those who are refused, also when the transaction of a handler that has answered was not
    /// committed. The closure is given the usual answer, to keep or to change.
    #[must_use]
    pub fn on_reject(
        self,
        replace: impl Fn(&Rejection, Response<Bytes>) -> Response<Bytes> + Send + Sync + 'static,
    ) -> Self {
        self.map(|policy| policy.on_reject(replace))
    }

    fn map(self, change: impl FnOnce(TxLockPolicy<RequestHead, P>) -> TxLockPolicy<RequestHead, P>) -> Self {
        let policy = Arc::try_unwrap(self.policy).unwrap_or_else(|shared| (*shared).clone());
        Self::from(change(policy))
    }
}

impl<P> From<TxLockPolicy<RequestHead, P>> for TxLockMiddleware<P> {
    fn from(policy: TxLockPolicy<RequestHead, P>) -> Self {
        Self {
            policy: Arc::new(policy),
        }
    }
}

/// By hand, since the provider need not be `Clone` for it.
impl<P> Clone for TxLockMiddleware<P> {
    fn clone(&self) -> Self {
        Self {
            policy: Arc::clone(&self.policy),
        }
    }
}

impl<P> fmt::Debug for TxLockMiddleware<P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TxLockMiddleware")
            .field("policy", &self.policy)
            .finish()
    }
}

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
