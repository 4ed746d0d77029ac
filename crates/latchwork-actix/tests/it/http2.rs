//! HTTP/2, where actix-web runs each handler in a task of its own.

use std::{io, net::SocketAddr};

use actix_web::{HttpResponse, rt, web};
use bytes::Bytes;
use http::Request;
use http_body_util::{BodyExt, Empty};
use hyper::{body::Incoming, client::conn::http2::SendRequest};
use hyper_util::rt::{TokioExecutor, TokioIo};
use latchwork_actix::{LockMiddleware, SlotMiddleware};
use latchwork_core::{Key, memory::MemoryServer};
use latchwork_harness::http::{Event, Stage, ask, in_time, stage};
use tokio::{net::TcpStream, task::JoinHandle};

use crate::support::{are_free, is_free, is_held, serve};

const KEY: Key = Key::bigint(1);

/// A connection; when its task is aborted, it is closed with everything on it.
async fn connect(server: SocketAddr) -> (SendRequest<Empty<Bytes>>, JoinHandle<hyper::Result<()>>) {
    let stream = in_time(TcpStream::connect(server)).await.unwrap();
    let handshake = hyper::client::conn::http2::handshake(TokioExecutor::new(), TokioIo::new(stream));
    let (client, connection) = in_time(handshake).await.unwrap();
    (client, rt::spawn(connection))
}

async fn get(client: &mut SendRequest<Empty<Bytes>>, path: &str, kind: &str) -> http::Response<Incoming> {
    let request = Request::get(format!("http://test{path}")).header("content-type", kind);
    in_time(client.send_request(request.body(Empty::new()).unwrap()))
        .await
        .unwrap()
}

async fn play(stage: web::Data<Stage>) -> &'static str {
    stage.play().await;
    "done"
}

#[actix_web::test]
async fn a_handler_runs_on_under_its_lock_whatever_its_client_does() {
    let server = MemoryServer::new();
    let locks = server.locks();
    let lock = LockMiddleware::new(server.locks(), KEY).unwrap();
    let (stage, mut watcher) = stage();
    let address = serve(move |routes| {
        routes
            .app_data(web::Data::new(stage.clone()))
            .service(web::resource("/").wrap(lock.clone()).route(web::get().to(play)))
            .route("/ping", web::get().to(|| async { "pong" }));
    });
    let (mut client, connection) = connect(address).await;
    let mut leaving = client.clone();
    let request = rt::spawn(async move { get(&mut leaving, "/", "text/plain").await });
    watcher.sees(Event::Entered).await;

    let refused = get(&mut client, "/", "text/plain").await;
    assert_eq!(
        (refused.status().as_u16(), &refused.headers()["retry-after"]),
        (409, &"1".parse().unwrap())
    );
    let body = in_time(refused.into_body().collect()).await.unwrap().to_bytes();
    assert!(
        String::from_utf8_lossy(&body).contains("urn:latchwork:problem:lock-busy"),
        "{body:?}"
    );
    let refused = get(&mut client, "/", "application/grpc").await;
    assert_eq!(
        (refused.status().as_u16(), &refused.headers()["grpc-status"]),
        (200, &"10".parse().unwrap())
    );

    request.abort();
    connection.abort();
    drop(client);
    // The only worker takes these up after what has come in before.
    for _ in 0..10 {
        assert_eq!(ask(address, "GET /ping").await.status(), 200);
    }
    assert!(is_held(&locks, KEY).await && watcher.has_seen_nothing());
    watcher.lets_go(1);
    watcher.sees(Event::Done).await;
    is_free(&locks, KEY).await;
}

#[actix_web::test]
async fn a_slot_is_kept_while_a_body_streams_and_until_its_client_leaves() {
    let server = MemoryServer::new();
    let slots = server.locks().slots("all", 1).unwrap();
    let slot = SlotMiddleware::global(slots.clone());
    let address = serve(move |routes| {
        let endless = || async {
            let chunks = futures_util::stream::repeat_with(|| Ok::<_, io::Error>(Bytes::from_static(&[b'x'; 1024])));
            HttpResponse::Ok().streaming(chunks)
        };
        routes.service(web::resource("/").wrap(slot.clone()).route(web::get().to(endless)));
    });
    let (mut client, _connection) = connect(address).await;
    let mut response = get(&mut client, "/", "text/plain").await;
    assert!(in_time(response.frame()).await.unwrap().is_ok());
    assert_eq!(get(&mut client, "/", "text/plain").await.status(), 503);
    // This stream is reset, and the connection stays.
    drop(response);
    are_free(&slots, 1).await;
    assert_eq!(get(&mut client, "/", "text/plain").await.status(), 200);
}
