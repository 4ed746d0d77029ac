use std::{
    convert::Infallible,
    future::Future,
    marker::PhantomData,
    pin::Pin,
    task::{Context, Poll},
};

use tonic::{
    Request, Response, Status,
    body::Body,
    server::{Grpc, NamedService, UnaryService},
};
use tower_service::Service;

use super::Raw;

/// What a method does, with one request and one response.
pub trait Handler: Clone + Send + Sync + 'static {
    /// Answers a request.
    fn handle(
        self,
        request: Request<Vec<u8>>,
    ) -> impl Future<Output = Result<Response<Vec<u8>>, Status>> + Send + 'static;
}

/// A service that handles every method alike, under the name of `N`.
#[derive(Debug)]
pub struct Unary<N, H> {
    handler: H,
    name: PhantomData<fn() -> N>,
}

impl<N, H> Unary<N, H> {
    /// A service around a handler.
    #[must_use]
    pub const fn new(handler: H) -> Self {
        Self {
            handler,
            name: PhantomData,
        }
    }
}

impl<N, H: Clone> Clone for Unary<N, H> {
    fn clone(&self) -> Self {
        Self::new(self.handler.clone())
    }
}

impl<N: NamedService, H> NamedService for Unary<N, H> {
    const NAME: &'static str = N::NAME;
}

impl<N, H: Handler> UnaryService<Vec<u8>> for Unary<N, H> {
    type Response = Vec<u8>;
    type Future = Answer<Response<Vec<u8>>, Status>;

    fn call(&mut self, request: Request<Vec<u8>>) -> Self::Future {
        Box::pin(self.handler.clone().handle(request))
    }
}

impl<N: 'static, H: Handler> Service<::http::Request<Body>> for Unary<N, H> {
    type Response = ::http::Response<Body>;
    type Error = Infallible;
    type Future = Answer<Self::Response, Infallible>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: ::http::Request<Body>) -> Self::Future {
        let service = self.clone();
        Box::pin(async move { Ok(Grpc::new(Raw).unary(service, request).await) })
    }
}

type Answer<T, E> = Pin<Box<dyn Future<Output = Result<T, E>> + Send>>;
