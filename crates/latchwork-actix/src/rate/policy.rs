use std::{future::Future, rc::Rc, sync::Arc};

use actix_web::{
    Error, HttpMessage,
    body::{EitherBody, MessageBody},
    dev::{Service, ServiceRequest, ServiceResponse},
};
use bytes::Bytes;
use http::Response;
use latchwork_http::{RateLimitPolicy, Rejection, ResponseFormat, rate::RateVerdict};

use crate::{
    RequestHead, RequestPolicy,
    answer::{append, refuse},
    service::sealed::Sealed,
};

impl Sealed for RateLimitPolicy<RequestHead> {}

impl RequestPolicy for RateLimitPolicy<RequestHead> {
    /// A refusal too: it has headers of its own.
    type Grant = RateVerdict;
    type Body<B: MessageBody + 'static> = B;

    fn attempt(
        &self,
        head: &RequestHead,
    ) -> Result<Option<impl Future<Output = Result<RateVerdict, Rejection>> + 'static>, Rejection> {
        let check = self.check(head)?;
        Ok(check.map(|check| async move { Ok(check.await) }))
    }

    fn pass<B: MessageBody + 'static>(body: B) -> B {
        body
    }

    async fn run<S, B>(
        self: Arc<Self>,
        verdict: RateVerdict,
        inner: Rc<S>,
        request: ServiceRequest,
        format: ResponseFormat,
    ) -> Result<ServiceResponse<EitherBody<B>>, Error>
    where
        S: Service<ServiceRequest, Response = ServiceResponse<B>, Error = Error> + 'static,
        B: MessageBody + 'static,
    {
        let mut response = if let Some(rejection) = &verdict.rejection {
            refuse(request, &self.respond(rejection, format))
        } else {
            if let Some(decision) = verdict.decision {
                request.extensions_mut().insert(decision);
            }
            inner.call(request).await?.map_into_left_body()
        };
        let told = verdict.headers.iter().map(|(name, value)| (name, value));
        append(response.headers_mut(), told);
        Ok(response)
    }

    fn respond(&self, rejection: &Rejection, format: ResponseFormat) -> Response<Bytes> {
        self.respond(rejection, format)
    }
}
