use std::{future::Future, rc::Rc, sync::Arc};

use actix_web::{
    Error,
    body::{EitherBody, MessageBody},
    dev::{Service, ServiceRequest, ServiceResponse},
};
use bytes::Bytes;
use http::Response;
use latchwork_core::Guard;
use latchwork_http::{LockLost, LockPolicy, Rejection, ResponseFormat, UnderLock};
use tracing::warn;

use super::HeldLock;
use crate::{
    RequestHead, RequestPolicy,
    answer::Stopped,
    run::{TaskEnded, run},
    service::sealed::Sealed,
};

impl Sealed for LockPolicy<RequestHead> {}

impl RequestPolicy for LockPolicy<RequestHead> {
    type Grant = Guard;
    type Body<B: MessageBody + 'static> = B;

    fn attempt(
        &self,
        head: &RequestHead,
    ) -> Result<Option<impl Future<Output = Result<Guard, Rejection>> + 'static>, Rejection> {
        self.attempt(head)
    }

    fn pass<B: MessageBody + 'static>(body: B) -> B {
        body
    }

    async fn run<S, B>(
        self: Arc<Self>,
        guard: Guard,
        inner: Rc<S>,
        request: ServiceRequest,
        format: ResponseFormat,
    ) -> Result<ServiceResponse<EitherBody<B>>, Error>
    where
        S: Service<ServiceRequest, Response = ServiceResponse<B>, Error = Error> + 'static,
        B: MessageBody + 'static,
    {
        let hold = HeldLock::put(guard, &request);
        let work = UnderLock::new(inner.call(request), hold, self.cancels_on_loss());
        match run(work, self.disconnect()).await {
            Ok(Ok(response)) => Ok(response?.map_into_left_body()),
            Ok(Err(LockLost { .. })) => {
                warn!(target: "latchwork::actix", "a lock was lost while its request was handled");
                let response = self.respond(&self.lost(), format);
                Err(Stopped::new("a lock was lost while its request was handled", response).into())
            }
            Err(TaskEnded) => Err(self.task_ended(format)),
        }
    }

    fn respond(&self, rejection: &Rejection, format: ResponseFormat) -> Response<Bytes> {
        self.respond(rejection, format)
    }
}
