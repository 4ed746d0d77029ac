//! On tonic: around a server, and around one service of it.

use latchwork_core::{Key, Locks};
use latchwork_harness::grpc::{Handler, Unary, call, listen};
use latchwork_tower::{
    HeldLock, LockLayer, Peer, SlotLayer, TxLockLayer,
    key::{client, header},
};
use tonic::{
    Code, Request, Response, Status,
    server::NamedService,
    service::{InterceptorLayer, LayerExt},
    transport::{Channel, Server, server::TcpConnectInfo},
};
use tower::ServiceBuilder;

use crate::{
    support::{Event, Stage, in_time, is_free, is_held, stage},
    tx::database::{Count, Database},
};

const KEY: Key = Key::bigint(1);

/// Echoes when its stage lets it go.
#[derive(Clone, Debug)]
struct Echo(Stage);

type EchoService = Unary<Echo, Echo>;

impl NamedService for Echo {
    const NAME: &'static str = "test.Echo";
}

impl Handler for Echo {
    async fn handle(self, request: Request<Vec<u8>>) -> Result<Response<Vec<u8>>, Status> {
        let held = request.extensions().get().is_none_or(|lock: &HeldLock| lock.is_held());
        let fails = request.metadata().get("x-key").is_some_and(|key| key == "fails");
        self.0.play().await;
        if held && !fails {
            Ok(Response::new(request.into_inner()))
        } else {
            Err(Status::internal("not held, or told to fail"))
        }
    }
}

fn serves(stage: Stage) -> EchoService {
    Unary::new(Echo(stage))
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
    let mut request = Request::new(b"hello".to_vec());
    request.metadata_mut().insert("x-key", key.parse().unwrap());
    call(channel, "/test.Echo/Echo", request)
        .await
        .map(Response::into_inner)
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
            serve!(Server::builder().layer(layer).add_service(serves(stage)))
        } else {
            serve!(Server::builder().add_service(layer.named_layer(serves(stage))))
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
    let channel = serve!(Server::builder().layer(layer).add_service(serves(stage)));
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
    let channel = serve!(Server::builder().layer(layer).add_service(serves(stage)));
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
    let channel = serve!(Server::builder().layer(gone).add_service(serves(stage.clone())));
    refused(&channel, Code::Unavailable).await;

    let no_route = LockLayer::new(Locks::in_memory(), header("x-other")).unwrap();
    let channel = serve!(Server::builder().layer(no_route).add_service(serves(stage)));
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
    let channel = serve!(Server::builder().layer(layers).add_service(serves(stage)));
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
            serve!(Server::builder().layer(layer).add_service(serves(stage)))
        } else {
            serve!(Server::builder().add_service(layer.named_layer(serves(stage))))
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
