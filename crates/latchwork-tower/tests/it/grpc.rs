//! On tonic: around a server, and around one service of it.

use std::{
    convert::Infallible,
    future::Future,
    pin::Pin,
    task::{Context, Poll},
};

use bytes::{Buf, BufMut};
use http::uri::PathAndQuery;
use latchwork_core::{Key, Locks};
use latchwork_tower::{
    HeldLock, LockLayer, Peer, SlotLayer, TxLockLayer,
    key::{client, header},
};
use tokio::net::TcpListener;
use tonic::{
    Code, Request, Response, Status,
    body::Body,
    codec::{Codec, DecodeBuf, Decoder, EncodeBuf, Encoder},
    server::{Grpc, NamedService, UnaryService},
    service::{InterceptorLayer, LayerExt},
    transport::{
        Channel, Endpoint, Server,
        server::{TcpConnectInfo, TcpIncoming},
    },
};
use tower::{Service, ServiceBuilder};

use crate::{
    support::{Event, Stage, in_time, is_free, is_held, stage},
    tx::database::{Count, Database},
};

const KEY: Key = Key::bigint(1);

/// Sends bytes as they are, so that no file has to be compiled.
#[derive(Clone, Copy, Debug, Default)]
struct Raw;

impl Codec for Raw {
    type Encode = Vec<u8>;
    type Decode = Vec<u8>;
    type Encoder = Self;
    type Decoder = Self;

    fn encoder(&mut self) -> Self {
        Self
    }

    fn decoder(&mut self) -> Self {
        Self
    }
}

impl Encoder for Raw {
    type Item = Vec<u8>;
    type Error = Status;

    fn encode(&mut self, item: Vec<u8>, buffer: &mut EncodeBuf<'_>) -> Result<(), Status> {
        buffer.put_slice(&item);
        Ok(())
    }
}

impl Decoder for Raw {
    type Item = Vec<u8>;
    type Error = Status;

    fn decode(&mut self, buffer: &mut DecodeBuf<'_>) -> Result<Option<Vec<u8>>, Status> {
        let mut item = vec![0; buffer.remaining()];
        buffer.copy_to_slice(&mut item);
        Ok(Some(item))
    }
}

/// Echoes when its stage lets it go.
#[derive(Clone, Debug)]
struct Echo(Stage);

impl NamedService for Echo {
    const NAME: &'static str = "test.Echo";
}

impl UnaryService<Vec<u8>> for Echo {
    type Response = Vec<u8>;
    type Future = Pin<Box<dyn Future<Output = Result<Response<Vec<u8>>, Status>> + Send>>;

    fn call(&mut self, request: Request<Vec<u8>>) -> Self::Future {
        let stage = self.0.clone();
        Box::pin(async move {
            let held = request.extensions().get().is_none_or(HeldLock::is_held);
            let fails = request.metadata().get("x-key").is_some_and(|key| key == "fails");
            stage.play().await;
            if held && !fails {
                Ok(Response::new(request.into_inner()))
            } else {
                Err(Status::internal("not held, or told to fail"))
            }
        })
    }
}

impl Service<http::Request<Body>> for Echo {
    type Response = http::Response<Body>;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Infallible>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: http::Request<Body>) -> Self::Future {
        let echo = self.clone();
        Box::pin(async move { Ok(Grpc::new(Raw).unary(echo, request).await) })
    }
}

async fn listen() -> (TcpIncoming, Channel) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let channel = Endpoint::from_shared(format!("http://{address}"))
        .unwrap()
        .connect_lazy();
    (TcpIncoming::from(listener), channel)
}

macro_rules! serve {
    ($router:expr) => {{
        let (incoming, channel) = listen().await;
        let router = $router;
        tokio::spawn(async move { router.serve_with_incoming(incoming).await.unwrap() });
        channel
    }};
}

async fn echo(channel: &Channel, key: &'static str) -> Result<Vec<u8>, Status> {
    let mut grpc = tonic::client::Grpc::new(channel.clone());
    grpc.ready().await.unwrap();
    let mut request = Request::new(b"hello".to_vec());
    request.metadata_mut().insert("x-key", key.parse().unwrap());
    let path = PathAndQuery::from_static("/test.Echo/Echo");
    in_time(grpc.unary(request, path, Raw)).await.map(Response::into_inner)
}

async fn refused(channel: &Channel, code: Code) -> Status {
    let status = echo(channel, "a").await.unwrap_err();
    assert_eq!(status.code(), code, "{status:?}");
    assert!(!status.message().is_empty());
    status
}

#[tokio::test]
async fn a_lock_around_the_server_and_around_one_service() {
    for around_server in [true, false] {
        let locks = Locks::in_memory();
        let layer = LockLayer::new(locks.clone(), KEY).unwrap();
        let (stage, mut watcher) = stage();
        let channel = if around_server {
            serve!(Server::builder().layer(layer).add_service(Echo(stage)))
        } else {
            serve!(Server::builder().add_service(layer.named_layer(Echo(stage))))
        };
        let first = tokio::spawn({
            let channel = channel.clone();
            async move { echo(&channel, "a").await }
        });
        watcher.sees(Event::Entered).await;
        let status = refused(&channel, Code::Aborted).await;
        assert_eq!(status.metadata().get("retry-after").unwrap(), "1");
        watcher.lets_go(1);
        assert_eq!(first.await.unwrap().unwrap(), b"hello");
        is_free(&locks, KEY).await;
    }
}

#[tokio::test]
async fn a_call_that_is_cancelled_frees_the_lock() {
    let locks = Locks::in_memory();
    let layer = LockLayer::new(locks.clone(), KEY).unwrap();
    let (stage, mut watcher) = stage();
    let channel = serve!(Server::builder().layer(layer).add_service(Echo(stage)));
    let call = tokio::spawn(async move { echo(&channel, "a").await });
    watcher.sees(Event::Entered).await;
    assert!(is_held(&locks, KEY).await);
    call.abort();
    watcher.sees(Event::Dropped).await;
    is_free(&locks, KEY).await;
}

#[tokio::test]
async fn slots_full_is_resource_exhausted_and_ends_with_the_trailers() {
    let locks = Locks::in_memory();
    let layer = SlotLayer::per(locks.clone(), ("client", header("x-key")), 1).unwrap();
    let (stage, mut watcher) = stage();
    let channel = serve!(Server::builder().layer(layer).add_service(Echo(stage)));
    let first = tokio::spawn({
        let channel = channel.clone();
        async move { echo(&channel, "a").await }
    });
    watcher.sees(Event::Entered).await;
    refused(&channel, Code::ResourceExhausted).await;
    watcher.lets_go(2);
    assert_eq!(echo(&channel, "b").await.unwrap(), b"hello");
    first.await.unwrap().unwrap();
    watcher.lets_go(1);
    // The client has the trailers a moment before the server drops the body.
    in_time(async {
        while let Err(status) = echo(&channel, "a").await {
            assert_eq!(status.code(), Code::ResourceExhausted);
        }
    })
    .await;
}

#[tokio::test]
async fn a_lock_server_that_is_gone_is_unavailable_and_a_bad_key_an_invalid_argument() {
    let closed = Locks::in_memory();
    closed.close().await;
    let (stage, _watcher) = stage();
    let gone = LockLayer::new(closed, KEY).unwrap();
    let channel = serve!(Server::builder().layer(gone).add_service(Echo(stage.clone())));
    refused(&channel, Code::Unavailable).await;

    let no_route = LockLayer::new(Locks::in_memory(), header("x-other")).unwrap();
    let channel = serve!(Server::builder().layer(no_route).add_service(Echo(stage)));
    refused(&channel, Code::InvalidArgument).await;
}

/// tonic's own extension for the peer is copied by an interceptor.
#[tokio::test]
async fn clients_are_told_apart_by_address_with_an_interceptor() {
    let tell_peer = InterceptorLayer::new(|mut request: Request<()>| {
        let peer = request.extensions().get().and_then(TcpConnectInfo::remote_addr);
        if let Some(peer) = peer {
            request.extensions_mut().insert(Peer(peer.ip()));
        }
        Ok(request)
    });
    let per_client = SlotLayer::per(Locks::in_memory(), ("client", client()), 1).unwrap();
    let (stage, mut watcher) = stage();
    let layers = ServiceBuilder::new().layer(tell_peer).layer(per_client);
    let channel = serve!(Server::builder().layer(layers).add_service(Echo(stage)));
    let first = tokio::spawn({
        let channel = channel.clone();
        async move { echo(&channel, "a").await }
    });
    watcher.sees(Event::Entered).await;
    refused(&channel, Code::ResourceExhausted).await;
    watcher.lets_go(1);
    first.await.unwrap().unwrap();
}

/// tonic answers a unary call that failed with 200 and its status in the headers.
#[tokio::test]
async fn a_transaction_is_stored_by_the_grpc_status_and_not_by_the_http_status() {
    for around_server in [true, false] {
        let database = Database::default();
        let layer = TxLockLayer::<Database>::new(database.clone(), KEY).unwrap();
        let (stage, watcher) = stage();
        let channel = if around_server {
            serve!(Server::builder().layer(layer).add_service(Echo(stage)))
        } else {
            serve!(Server::builder().add_service(layer.named_layer(Echo(stage))))
        };
        watcher.lets_go(2);
        assert_eq!(echo(&channel, "a").await.unwrap(), b"hello");
        assert_eq!(database.settled().await, Count::COMMITTED);
        assert_eq!(echo(&channel, "fails").await.unwrap_err().code(), Code::Internal);
        let ended = Count {
            rolled_back: 1,
            ..Count::COMMITTED
        };
        assert_eq!(database.settled().await, ended);
    }
}
