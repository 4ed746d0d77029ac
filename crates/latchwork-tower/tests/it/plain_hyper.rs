//! On hyper without a framework.

use std::{convert::Infallible, net::SocketAddr};

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::Full;
use hyper::{body::Incoming, server::conn::http1};
use hyper_util::{rt::TokioIo, service::TowerToHyperService};
use latchwork_core::Locks;
use latchwork_tower::{
    HeldLock, LockLayer, Peer, SlotLayer,
    key::{client, segment},
};
use tokio::net::TcpListener;
use tower::{Layer, ServiceExt, service_fn};

use crate::support::{Client, Event, Leave, Stage, ask, stage};

async fn serve(locks: Locks, stage: Stage) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let lock = LockLayer::new(locks.clone(), ("order", segment(0))).unwrap();
    let slot = SlotLayer::per(locks, ("client", client()), 2).unwrap();
    tokio::spawn(async move {
        loop {
            let (connection, peer) = listener.accept().await.unwrap();
            let stage = stage.clone();
            let handler = service_fn(move |request: Request<Incoming>| {
                let stage = stage.clone();
                async move {
                    assert!(request.extensions().get::<HeldLock>().unwrap().is_held());
                    stage.play().await;
                    Ok::<_, Infallible>(Response::new(Full::new(Bytes::from_static(b"done"))))
                }
            });
            let service = slot
                .layer(lock.layer(handler))
                .map_request(move |mut request: Request<Incoming>| {
                    request.extensions_mut().insert(Peer(peer.ip()));
                    request
                });
            let served =
                http1::Builder::new().serve_connection(TokioIo::new(connection), TowerToHyperService::new(service));
            tokio::spawn(async move {
                // A client that leaves is an error here.
                let _ = served.await;
            });
        }
    });
    address
}

#[tokio::test]
async fn locks_slots_and_disconnects_work_on_plain_hyper() {
    let (stage, mut watcher) = stage();
    let address = serve(Locks::in_memory(), stage).await;
    let first = Client::asks(address, "GET /1", "connection: close\r\n").await;
    watcher.sees(Event::Entered).await;
    assert_eq!(ask(address, "GET /1").await.status(), 409);
    let second = Client::asks(address, "GET /2", "").await;
    watcher.sees(Event::Entered).await;
    assert_eq!(ask(address, "GET /3").await.status(), 429);
    assert!(second.leave(Leave::Rst).await.is_none());
    watcher.sees(Event::Dropped).await;
    watcher.lets_go(2);
    let answer = first.answer().await;
    assert_eq!((answer.status(), answer.body()), (200, "done"));
    watcher.sees(Event::Done).await;
    assert_eq!(ask(address, "GET /2").await.status(), 200);
}
