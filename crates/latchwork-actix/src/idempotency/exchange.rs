//! One request that may be sent again, from its body to its answer.

use std::{rc::Rc, sync::Arc};

use actix_web::{
    Error, HttpMessage,
    body::{self, BodySize, BoxBody, EitherBody, MessageBody, to_bytes_limited},
    dev::{Payload, Service, ServiceRequest, ServiceResponse},
    http::header::{self, HeaderMap},
    web,
};
use bytes::Bytes;
use latchwork_http::{
    IdempotencyPolicy, Rejection, RejectionKind, ResponseFormat, TxProvider,
    idempotency::{Begun, IdempotentRequest, IdempotentRun},
};
use tracing::debug;

use crate::{
    RequestHead, RequestPolicy,
    answer::{ResponseHead, refuse, refused, replace, replay},
    run::{TaskEnded, run},
};

pub(super) struct Exchange<P> {
    policy: Arc<IdempotencyPolicy<RequestHead, P>>,
    format: ResponseFormat,
}

type Answer<B> = Result<ServiceResponse<EitherBody<B>>, Error>;

impl<P: TxProvider> Exchange<P> {
    pub(super) const fn new(policy: Arc<IdempotencyPolicy<RequestHead, P>>, format: ResponseFormat) -> Self {
        Self { policy, format }
    }

    /// Reads the body, and answers with what was kept, or runs the handler.
    pub(super) async fn carry_out<S, B>(
        self,
        idempotent: &IdempotentRequest,
        inner: Rc<S>,
        mut request: ServiceRequest,
    ) -> Answer<B>
    where
        S: Service<ServiceRequest, Response = ServiceResponse<B>, Error = Error> + 'static,
        B: MessageBody + 'static,
    {
        let body = match read(&mut request, self.policy.request_cap()).await {
            Ok(body) => body,
            Err(rejection) => return Ok(self.refuse(request, &rejection)),
        };
        let work = match self.policy.begin(idempotent, &body).await {
            Ok(Begun::Run(work)) => work,
            Ok(Begun::Replay(response)) => return Ok(replay(request, &response)),
            Err(rejection) => return Ok(self.refuse(request, &rejection)),
        };
        if let Some(slot) = work.slot() {
            request.extensions_mut().insert(Arc::clone(slot));
        }
        request.set_payload(Payload::from(body));
        let (on_disconnect, policy, format) = (self.policy.disconnect(), Arc::clone(&self.policy), self.format);
        match run(self.finish(inner, request, work), on_disconnect).await {
            Ok(answer) => answer,
            Err(TaskEnded) => Err(policy.task_ended(format)),
        }
    }

    /// Runs the handler, and keeps its response before it leaves.
    async fn finish<S, B>(self, inner: Rc<S>, request: ServiceRequest, work: IdempotentRun<P>) -> Answer<B>
    where
        S: Service<ServiceRequest, Response = ServiceResponse<B>, Error = Error> + 'static,
        B: MessageBody + 'static,
    {
        let response = match inner.call(request).await {
            Ok(response) => response,
            Err(error) => {
                // Before the answer leaves, so that one who asks again does not meet our own lock.
                let _ = work.fail().await;
                return Err(error);
            }
        };
        let refused = refused(&response);
        if refused.is_some() || !self.policy.commits(&ResponseHead::of(&response)) {
            return Ok(match work.not_kept(refused).await {
                Ok(()) => response.map_into_left_body(),
                Err(rejection) => self.replace(response, &rejection),
            });
        }
        let cap = self.policy.response_cap() as u64;
        let is_small = match response.response().body().size() {
            BodySize::None => true,
            BodySize::Sized(bytes) => bytes <= cap,
            BodySize::Stream => false,
        };
        let (kept, response) = if is_small {
            match whole(response, self.policy.response_cap()).await {
                Ok((bytes, response)) => (Some(bytes), response),
                // The response would not have arrived whole; the handler's work goes with it.
                Err(request) => return Ok(self.replace(request, &work.break_off().await)),
            }
        } else {
            (None, response.map_into_left_body())
        };
        let keeps = work.keep(&ResponseHead::of(&response), kept);
        Ok(match keeps.await {
            Ok(()) => response,
            Err(rejection) => self.replace(response, &rejection),
        })
    }

    fn refuse<B: MessageBody>(&self, request: ServiceRequest, rejection: &Rejection) -> ServiceResponse<EitherBody<B>> {
        debug!(target: "latchwork::actix", kind = ?rejection.kind(), "a request that may be sent again was refused");
        refuse(request, &self.policy.respond(rejection, self.format))
    }

    fn replace<R, B>(&self, handled: ServiceResponse<R>, rejection: &Rejection) -> ServiceResponse<EitherBody<B>> {
        debug!(target: "latchwork::actix", kind = ?rejection.kind(), "the response to a request was not kept");
        replace(handled, &self.policy.respond(rejection, self.format))
    }
}

/// Reads a request's body, up to a number of bytes, whatever its headers say of its length. One that is announced to be
/// larger is not waited for.
async fn read(request: &mut ServiceRequest, cap: usize) -> Result<Bytes, Rejection> {
    if announced(request.headers()).is_some_and(|bytes| bytes > cap as u64) {
        return Err(Rejection::new(RejectionKind::BodyTooLarge));
    }
    let payload = request.extract::<web::Payload>().await.map_err(|_| incomplete())?;
    match payload.to_bytes_limited(cap).await {
        Ok(Ok(body)) => Ok(body),
        Ok(Err(_)) => Err(incomplete()),
        Err(_) => Err(Rejection::new(RejectionKind::BodyTooLarge)),
    }
}

/// How long a body is said to be, unless it comes in chunks, which is what counts then.
fn announced(headers: &HeaderMap) -> Option<u64> {
    if headers.contains_key(header::TRANSFER_ENCODING) {
        return None;
    }
    headers.get(header::CONTENT_LENGTH)?.to_str().ok()?.parse().ok()
}

fn incomplete() -> Rejection {
    Rejection::new(RejectionKind::BodyIncomplete)
}

/// The bytes of a response that is small and whole, beside the response; without its body if that could not be read.
async fn whole<B: MessageBody>(
    response: ServiceResponse<B>,
    cap: usize,
) -> Result<(Bytes, ServiceResponse<EitherBody<B>>), ServiceResponse<()>> {
    let (request, response) = response.into_parts();
    let (head, body) = response.into_parts();
    let size = body.size();
    match to_bytes_limited(body, cap).await {
        Ok(Ok(bytes)) => {
            // What has no body has no length to tell either.
            let body = match size {
                BodySize::None => BoxBody::new(body::None::new()),
                _ => BoxBody::new(bytes.clone()),
            };
            let response = head.set_body(EitherBody::right(body));
            Ok((bytes, ServiceResponse::new(request, response)))
        }
        _ => Err(ServiceResponse::new(request, head)),
    }
}
