use std::{
    future::{Ready, ready},
    sync::Arc,
};

use actix_web::{
    Error,
    body::{EitherBody, MessageBody},
    dev::{Service, ServiceRequest, ServiceResponse, Transform},
};
use latchwork_http::{IdempotencyPolicy, tx::TxProvider};

use crate::{PolicyService, RequestHead};

/// Works on each `Idempotency-Key` once, and answers those who repeat it with the first response.
///
/// The handler's own writes, made by the request's transaction, and the response that is kept commit together before the
/// response leaves. Handlers find the transaction as with [`TxLockMiddleware`](crate::TxLockMiddleware).
///
/// Request bodies are read whole before the handler runs, which finds them byte for byte, whatever extractor it uses. What
/// a middleware inside ends with an error is not kept and rolled back, whatever status the error has.
///
/// Records are kept in the table `latchwork.idempotency`.
///
/// # Examples
///
/// ```
/// use actix_web::{App, HttpResponse, error::ErrorInternalServerError, web};
/// use latchwork_actix::{IdempotencyMiddleware, LockedTx, TxProvider, key::header};
///
/// async fn pay<P: TxProvider>(mut tx: LockedTx<P::Tx>) -> actix_web::Result<HttpResponse> {
///     let pay = "INSERT INTO payments (amount) VALUES (5)";
///     P::query(&mut tx, pay, &[]).await.map_err(ErrorInternalServerError)?;
///     Ok(HttpResponse::Created().finish())
/// }
///
/// fn app<P: TxProvider>(provider: P) -> Result<(), Box<dyn std::error::Error>> {
///     // Made once, and cloned into each worker's app. The header stands for who was authenticated.
///     let once = IdempotencyMiddleware::<P>::new(provider, header("x-user"))?;
///     let app = App::new()
///         .service(web::resource("/payments").wrap(once.clone()).route(web::post().to(pay::<P>)));
///     # drop(app);
///     Ok(())
/// }
/// ```
pub struct IdempotencyMiddleware<P> {
    /// Copied on write, so that all workers share one.
    policy: Arc<IdempotencyPolicy<RequestHead, P>>,
}

latchwork_http::__wear_idempotency!(IdempotencyMiddleware, RequestHead);

impl<S, B, P> Transform<S, ServiceRequest> for IdempotencyMiddleware<P>
where
    S: Service<ServiceRequest, Response = ServiceResponse<B>, Error = Error> + 'static,
    B: MessageBody + 'static,
    P: TxProvider,
{
    type Response = ServiceResponse<EitherBody<B>>;
    type Error = Error;
    type Transform = PolicyService<S, IdempotencyPolicy<RequestHead, P>>;
    type InitError = ();
    type Future = Ready<Result<Self::Transform, Self::InitError>>;

    fn new_transform(&self, service: S) -> Self::Future {
        ready(Ok(PolicyService::new(service, Arc::clone(&self.policy))))
    }
}
