//! Locks that are lost while a handler runs, and lock servers that are gone.

use std::net::SocketAddr;

use actix_cors::Cors;
use actix_web::{App, HttpServer, web};
use latchwork_actix::{LockMiddleware, OnDisconnect, SlotMiddleware};
use latchwork_core::{Key, memory::MemoryServer};
use latchwork_harness::http::{Client, Event, Stage, Watcher, ask, stage};

use crate::support::{is_free, serve, start};

const KEY: Key = Key::bigint(1);

fn locked(lock: LockMiddleware) -> (SocketAddr, Watcher) {
    let (stage, watcher) = stage();
    let app = move || {
        App::new().app_data(web::Data::new(stage.clone())).service(
            web::resource("/")
                .wrap(lock.clone())
                .wrap(Cors::default().allowed_origin("https://shop.example"))
                .route(web::post().to(play)),
        )
    };
    (start!(HttpServer::new(app).workers(1)), watcher)
}

async fn play(stage: web::Data<Stage>) -> &'static str {
    stage.play().await;
    "done"
}

#[actix_web::test]
async fn a_lost_lock_cancels_the_handler_and_is_503() {
    for on_disconnect in [OnDisconnect::Cancel, OnDisconnect::Complete] {
        let server = MemoryServer::new();
        let lock = LockMiddleware::new(server.locks(), KEY)
            .unwrap()
            .on_disconnect(on_disconnect);
        let (address, mut watcher) = locked(lock);
        let headers = "connection: close\r\norigin: https://shop.example\r\n";
        let client = Client::asks(address, "POST /", headers).await;
        watcher.sees(Event::Entered).await;
        server.end_sessions();
        watcher.sees(Event::Dropped).await;
        let answer = client.answer().await;
        assert_eq!(answer.status(), 503);
        assert!(answer.body().contains("urn:latchwork:problem:lock-lost"), "{answer:?}");
        assert_eq!(answer.header("content-type"), Some("application/problem+json"));
        assert_eq!(answer.header("retry-after"), Some("1"));
        // Though it is an error, CORS outside decorates its response.
        assert_eq!(
            answer.header("access-control-allow-origin"),
            Some("https://shop.example")
        );
        is_free(&server.locks(), KEY).await;
    }
}

#[actix_web::test]
async fn a_handler_that_chose_so_outlives_its_lock_and_does_not_free_the_next_holders() {
    let server = MemoryServer::new();
    let locks = server.locks();
    let (address, mut watcher) = locked(LockMiddleware::new(server.locks(), KEY).unwrap().cancel_on_loss(false));
    let client = Client::asks(address, "POST /", "connection: close\r\n").await;
    watcher.sees(Event::Entered).await;
    // The only worker answers this when it has put the handler aside.
    assert_eq!(ask(address, "GET /nowhere").await.status(), 404);
    server.end_sessions();
    let next = locks.try_acquire(KEY).await.unwrap().unwrap();
    watcher.lets_go(1);
    watcher.sees(Event::Done).await;
    assert_eq!(client.answer().await.status(), 200);
    assert!(next.is_held());
    assert_eq!(ask(address, "POST /").await.status(), 409);
}

#[actix_web::test]
async fn a_lock_server_that_is_gone_is_503_for_lock_and_slot() {
    let locks = MemoryServer::new().locks();
    let lock = LockMiddleware::new(locks.clone(), KEY).unwrap();
    let slot = SlotMiddleware::per(locks.clone(), "all", 1).unwrap();
    let address = serve(move |routes| {
        let route = || web::post().to(|| async { "done" });
        routes
            .service(web::resource("/lock").wrap(lock.clone()).route(route()))
            .service(web::resource("/slot").wrap(slot.clone()).route(route()));
    });
    assert_eq!(ask(address, "POST /slot").await.status(), 200);
    locks.close().await;
    for path in ["/lock", "/slot"] {
        let answer = ask(address, &format!("POST {path}")).await;
        assert_eq!(answer.status(), 503, "{path}");
        assert!(
            answer.body().contains("urn:latchwork:problem:unavailable"),
            "{answer:?}"
        );
    }
}
