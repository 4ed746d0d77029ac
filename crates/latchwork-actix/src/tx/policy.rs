use std::{future::Future, rc::Rc, sync::Arc};

use actix_web::{
    Error, HttpMessage,
    body::{EitherBody, MessageBody},
    dev::{Service, ServiceRequest, ServiceResponse},
};
use bytes::Bytes;
use http::Response;
use latchwork_http::{Rejection, ResponseFormat, ResponseView, TxLockPolicy, TxProvider, tx::OpenTx};

use crate::{
    RequestHead, RequestPolicy,
    answer::{ResponseHead, replace},
    run::{TaskEnded, run},
    service::sealed::Sealed,
};

impl<P: TxProvider> Sealed for TxLockPolicy<RequestHead, P> {}

impl<P: TxProvider> RequestPolicy for TxLockPolicy<RequestHead, P> {
    type Grant = OpenTx<P>;
    type Body<B: MessageBody + 'static> = B;

    fn attempt(
        &self,
        head: &RequestHead,
    ) -> Result<Option<impl Future<Output = Result<OpenTx<P>, Rejection>> + 'static>, Rejection> {
        self.attempt(head)
    }

    fn pass<B: MessageBody + 'static>(body: B) -> B {
        body
    }

    async fn run<S, B>(
        self: Arc<Self>,
        open: OpenTx<P>,
        inner: Rc<S>,
        request: ServiceRequest,
        format: ResponseFormat,
    ) -> Result<ServiceResponse<EitherBody<B>>, Error>
    where
        S: Service<ServiceRequest, Response = ServiceResponse<B>, Error = Error> + 'static,
        B: MessageBody + 'static,
    {
        request.extensions_mut().insert(Arc::clone(open.slot()));
        let policy = Arc::clone(&self);
        // The handler is a part of the future, so it has given the transaction back before that is dropped.
        let work = async move {
            let answer = inner.call(request).await;
            let head = answer.as_ref().ok().map(ResponseHead::of);
            let end = policy.end(open, head.as_ref().map(|head| head as &dyn ResponseView));
            (answer, end.await)
        };
        match run(work, self.disconnect()).await {
            Ok((answer, Ok(()))) => Ok(answer?.map_into_left_body()),
            Ok((answer, Err(rejection))) => Ok(replace(answer?, &self.respond(&rejection, format))),
            Err(TaskEnded) => Err(self.task_ended(format)),
        }
    }

    fn respond(&self, rejection: &Rejection, format: ResponseFormat) -> Response<Bytes> {
        self.respond(rejection, format)
    }
}
