//! Locks that are lost while a handler runs, and lock servers that are gone.

use axum::{Router, routing::post};
use latchwork_core::{Key, memory::MemoryServer};
use latchwork_tower::{LockLayer, OnDisconnect, SlotLayer};

use crate::support::{Client, Event, ask, is_free, serve, stage};

const KEY: Key = Key::bigint(1);

#[tokio::test]
async fn a_lost_lock_cancels_the_handler_and_is_503() {
    for on_disconnect in [OnDisconnect::Cancel, OnDisconnect::Complete] {
        let server = MemoryServer::new();
        let (stage, mut watcher) = stage();
        let layer = LockLayer::new(server.locks(), KEY)
            .unwrap()
            .on_disconnect(on_disconnect);
        let handler = move || async move { stage.play().await };
        let address = serve(Router::new().route("/", post(handler).layer(layer))).await;

        let client = Client::asks(address, "POST /", "connection: close\r\n").await;
        watcher.sees(Event::Entered).await;
        server.end_sessions();
        watcher.sees(Event::Dropped).await;
        let answer = client.answer().await;
        assert_eq!(answer.status(), 503);
        assert!(answer.body().contains("urn:latchwork:problem:lock-lost"), "{answer:?}");
        assert_eq!(answer.header("retry-after"), Some("1"));
        is_free(&server.locks(), KEY).await;
    }
}

#[tokio::test]
async fn a_handler_that_chose_so_outlives_its_lock_and_does_not_free_the_next_holders() {
    let server = MemoryServer::new();
    let locks = server.locks();
    let (stage, mut watcher) = stage();
    let layer = LockLayer::new(server.locks(), KEY).unwrap().cancel_on_loss(false);
    let handler = move || async move { stage.play().await };
    let address = serve(Router::new().route("/", post(handler).layer(layer))).await;

    let client = Client::asks(address, "POST /", "connection: close\r\n").await;
    watcher.sees(Event::Entered).await;
    server.end_sessions();
    let next = locks.try_acquire(KEY).await.unwrap().unwrap();
    watcher.lets_go(1);
    watcher.sees(Event::Done).await;
    assert_eq!(client.answer().await.status(), 200);
    assert!(next.is_held());
    assert_eq!(ask(address, "POST /").await.status(), 409);
}

#[tokio::test]
async fn a_lock_server_that_is_gone_is_503_for_lock_and_slot() {
    let locks = MemoryServer::new().locks();
    let lock = LockLayer::new(locks.clone(), KEY).unwrap();
    let slot = SlotLayer::per(locks.clone(), "all", 1).unwrap();
    let app = Router::new()
        .route("/lock", post(|| async {}).layer(lock))
        .route("/slot", post(|| async {}).layer(slot));
    let address = serve(app).await;
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
