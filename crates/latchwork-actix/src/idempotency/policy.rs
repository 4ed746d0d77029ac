use std::{
    future::{Future, ready},
    rc::Rc,
    sync::Arc,
};

use actix_web::{
    Error,
    body::{EitherBody, MessageBody},
    dev::{Service, ServiceRequest, ServiceResponse},
};
use bytes::Bytes;
use http::Response;
use latchwork_http::{IdempotencyPolicy, Rejection, ResponseFormat, TxProvider, idempotency::IdempotentRequest};

use super::exchange::Exchange;
use crate::{RequestHead, RequestPolicy, service::sealed::Sealed};

impl<P: TxProvider> Sealed for IdempotencyPolicy<RequestHead, P> {}

impl<P: TxProvider> RequestPolicy for IdempotencyPolicy<RequestHead, P> {
    /// What is known of a request before its body is read.
    type Grant = IdempotentRequest;
    type Body<B: MessageBody + 'static> = B;

    fn attempt(
        &self,
        head: &RequestHead,
    ) -> Result<Option<impl Future<Output = Result<IdempotentRequest, Rejection>> + 'static>, Rejection> {
        let request = self.request(head, Some(head.query_string()))?;
        Ok(request.map(|request| ready(Ok(request))))
    }

    fn pass<B: MessageBody + 'static>(body: B) -> B {
        body
    }

    async fn run<S, B>(
        self: Arc<Self>,
        idempotent: IdempotentRequest,
        inner: Rc<S>,
        request: ServiceRequest,
        format: ResponseFormat,
    ) -> Result<ServiceResponse<EitherBody<B>>, Error>
    where
        S: Service<ServiceRequest, Response = ServiceResponse<B>, Error = Error> + 'static,
        B: MessageBody + 'static,
    {
        Exchange::new(self, format).carry_out(&idempotent, inner, request).await
    }

    fn respond(&self, rejection: &Rejection, format: ResponseFormat) -> Response<Bytes> {
        self.respond(rejection, format)
    }
}
