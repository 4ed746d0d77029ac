//! One request that may be sent again, from its body to its answer.

use std::{future::Future, sync::Arc};

use bytes::Bytes;
use http::{HeaderMap, Request, Response};
use http_body::Body;
use http_body_util::{BodyExt, LengthLimitError, Limited};
use latchwork_http::{
    IdempotencyPolicy, Rejection, RejectionKind, ResponseFormat,
    idempotency::{Begun, IdempotentRequest, IdempotentRun},
    tx::TxProvider,
};
use tower_service::Service;
use tracing::debug;

use crate::{
    PolicyBody, RequestHead,
    run::{Run, TaskEnded},
};

/// What is known of a request before its body is read.
pub(super) struct Exchange<P> {
    policy: Arc<IdempotencyPolicy<RequestHead, P>>,
    request: IdempotentRequest,
    format: ResponseFormat,
}

impl<P: TxProvider> Exchange<P> {
    pub(super) const fn new(
        policy: Arc<IdempotencyPolicy<RequestHead, P>>,
        request: IdempotentRequest,
        format: ResponseFormat,
    ) -> Self {
        Self {
            policy,
            request,
            format,
        }
    }

    /// Reads the body, and answers with what was kept, or runs the handler.
    pub(super) async fn carry_out<S, B, R>(
        self,
        ready: S,
        mut head: RequestHead,
        body: B,
    ) -> Result<Response<PolicyBody<R>>, S::Error>
    where
        S: Service<Request<PolicyBody<B>>, Response = Response<R>> + Send + 'static,
        S::Future: Send + 'static,
        S::Error: Send + 'static,
        B: Body + Send + 'static,
        B::Data: Send,
        R: Body + Send + 'static,
        R::Data: From<Bytes> + Send,
    {
        let (body, trailers) = match read(body, self.policy.request_cap()).await {
            Ok(body) => body,
            Err(rejection) => return Ok(self.refuse(&rejection)),
        };
        let run = match self.policy.begin(&self.request, &body).await {
            Ok(Begun::Run(run)) => run,
            Ok(Begun::Replay(response)) => return Ok(response.map(PolicyBody::bytes)),
            Err(rejection) => return Ok(self.refuse(&rejection)),
        };
        if let Some(slot) = run.slot() {
            head.insert(Arc::clone(slot));
        }
        let request = head.with_body(PolicyBody::whole(body, trailers));
        let (on_disconnect, policy, format) = (self.policy.disconnect(), Arc::clone(&self.policy), self.format);
        match Run::new(self.finish(ready, request, run), on_disconnect).await {
            Ok(response) => response,
            Err(TaskEnded) => {
                let rejection = Rejection::new(RejectionKind::Unavailable);
                Ok(PolicyBody::refusal(policy.respond(&rejection, format)))
            }
        }
    }

    /// Runs the handler, and keeps its response before it leaves.
    fn finish<S, B, R>(
        self,
        mut ready: S,
        request: Request<PolicyBody<B>>,
        run: IdempotentRun<P>,
    ) -> impl Future<Output = Result<Response<PolicyBody<R>>, S::Error>> + Send
    where
        S: Service<Request<PolicyBody<B>>, Response = Response<R>> + Send + 'static,
        S::Future: Send + 'static,
        S::Error: Send,
        R: Body + Send + 'static,
        R::Data: From<Bytes> + Send,
    {
        // Called here, so that the body need not live in the future.
        let handler = ready.call(request);
        async move {
            let handled = handler.await;
            // The service may be what keeps the handler's state alive.
            drop(ready);
            let response = match handled {
                Ok(response) => response,
                Err(error) => {
                    // Before the error leaves, so that one who asks again does not meet our own lock.
                    let _ = run.fail().await;
                    return Err(error);
                }
            };
            let refused = response.extensions().get::<RejectionKind>().copied();
            if refused.is_some() || !self.policy.commits(&response) {
                return Ok(match run.not_kept(refused).await {
                    Ok(()) => PolicyBody::inner(response),
                    Err(rejection) => self.refuse(&rejection),
                });
            }
            let (head, body) = response.into_parts();
            let Some((kept, body)) = whole(body, self.policy.response_cap()).await else {
                // The response would not have arrived whole; the handler's work goes with it.
                return Ok(self.refuse(&run.break_off().await));
            };
            let response = Response::from_parts(head, body);
            Ok(match run.keep(&response, kept).await {
                Ok(()) => response,
                Err(rejection) => self.refuse(&rejection),
            })
        }
    }

    fn refuse<R>(&self, rejection: &Rejection) -> Response<PolicyBody<R>> {
        debug!(target: "latchwork::tower", kind = ?rejection.kind(), "a request that may be sent again was refused");
        PolicyBody::refusal(self.policy.respond(rejection, self.format))
    }
}

/// Reads a request's body, up to a number of bytes, whatever its headers say of its length. One that is announced to be
/// larger is not waited for.
async fn read<B>(body: B, cap: usize) -> Result<(Bytes, Option<HeaderMap>), Rejection>
where
    B: Body,
{
    if body.size_hint().lower() > cap as u64 {
        return Err(Rejection::new(RejectionKind::BodyTooLarge));
    }
    // The error of the body may be of any type, so it is not looked into.
    let failed = body.map_err(|_| BodyFailed);
    match Limited::new(Box::pin(failed), cap).collect().await {
        Ok(body) => {
            let trailers = body.trailers().cloned();
            Ok((body.to_bytes(), trailers))
        }
        Err(error) if error.is::<LengthLimitError>() => Err(Rejection::new(RejectionKind::BodyTooLarge)),
        Err(_) => Err(Rejection::new(RejectionKind::BodyIncomplete)),
    }
}

#[derive(Debug, thiserror::Error)]
#[error("the body ended early")]
struct BodyFailed;

/// The bytes of a response that is small and whole, to be kept; none beside one that passes as it is. `None` if its
/// body failed.
async fn whole<R>(body: R, cap: usize) -> Option<(Option<Bytes>, PolicyBody<R>)>
where
    R: Body,
    R::Data: From<Bytes>,
{
    let is_small = body.size_hint().exact().is_some_and(|bytes| bytes <= cap as u64);
    if !is_small {
        return Some((None, PolicyBody::of(body)));
    }
    let body = body.collect().await.ok()?;
    let trailers = body.trailers().cloned();
    let bytes = body.to_bytes();
    // A replay has no trailers, and would not be the same response.
    let kept = trailers.is_none().then(|| bytes.clone());
    Some((kept, PolicyBody::whole(bytes, trailers)))
}
