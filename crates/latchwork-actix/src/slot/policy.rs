use std::{future::Future, rc::Rc, sync::Arc};

use actix_web::{
    Error,
    body::{EitherBody, MessageBody},
    dev::{Service, ServiceRequest, ServiceResponse},
};
use bytes::Bytes;
use http::Response;
use latchwork_core::Permit;
use latchwork_http::{Rejection, ResponseFormat, SlotPolicy};

use super::{HeldPermit, SlotBody};
use crate::{
    RequestHead, RequestPolicy,
    run::{TaskEnded, run},
    service::sealed::Sealed,
};

impl Sealed for SlotPolicy<RequestHead> {}

impl RequestPolicy for SlotPolicy<RequestHead> {
    type Grant = Permit;
    type Body<B: MessageBody + 'static> = SlotBody<B>;

    fn attempt(
        &self,
        head: &RequestHead,
    ) -> Result<Option<impl Future<Output = Result<Permit, Rejection>> + 'static>, Rejection> {
        self.attempt(head)
    }

    fn pass<B: MessageBody + 'static>(body: B) -> SlotBody<B> {
        SlotBody::new(body, None)
    }

    async fn run<S, B>(
        self: Arc<Self>,
        permit: Permit,
        inner: Rc<S>,
        request: ServiceRequest,
        format: ResponseFormat,
    ) -> Result<ServiceResponse<EitherBody<SlotBody<B>>>, Error>
    where
        S: Service<ServiceRequest, Response = ServiceResponse<B>, Error = Error> + 'static,
        B: MessageBody + 'static,
    {
        let hold = HeldPermit::put(permit, &request);
        // The handler is a part of the future, so it is dropped before what was moved into it.
        let work = async move { (inner.call(request).await, hold) };
        match run(work, self.disconnect()).await {
            Ok((response, hold)) => {
                let hold = Some(hold).filter(|_| !self.ends_at_response());
                Ok(response?.map_body(|_, body| EitherBody::left(SlotBody::new(body, hold))))
            }
            Err(TaskEnded) => Err(self.task_ended(format)),
        }
    }

    fn respond(&self, rejection: &Rejection, format: ResponseFormat) -> Response<Bytes> {
        self.respond(rejection, format)
    }
}
