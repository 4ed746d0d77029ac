//! Keys by client, over real connections.

use axum::{Router, routing::get};
use latchwork_core::Locks;
use latchwork_tower::{SlotLayer, key::client};

use crate::support::{Client, Event, Watcher, ask, ask_with, serve, stage};

async fn one_a_client(key: latchwork_tower::key::ClientAddress) -> (std::net::SocketAddr, Watcher) {
    let (stage, watcher) = stage();
    let layer = SlotLayer::per(Locks::in_memory(), ("client", key), 1).unwrap();
    let handler = move || async move { stage.play().await };
    (
        serve(Router::new().route("/", get(handler).layer(layer))).await,
        watcher,
    )
}

#[tokio::test]
async fn forged_headers_from_one_peer_are_one_client() {
    let (address, mut watcher) = one_a_client(client()).await;
    let _first = Client::asks(address, "GET /", "x-forwarded-for: 198.51.100.1\r\n").await;
    watcher.sees(Event::Entered).await;
    for hop in 2..6 {
        let answer = ask_with(address, "GET /", &format!("x-forwarded-for: 198.51.100.{hop}\r\n")).await;
        assert_eq!(answer.status(), 429);
        assert_eq!(answer.header("retry-after"), Some("1"));
    }
}

#[tokio::test]
async fn behind_a_trusted_proxy_clients_are_told_apart() {
    let (address, mut watcher) = one_a_client(client().behind(["127.0.0.0/8", "::1"])).await;
    let mut inside = Vec::new();
    for hop in 1..4 {
        inside.push(Client::asks(address, "GET /", &format!("x-forwarded-for: 198.51.100.{hop}\r\n")).await);
        watcher.sees(Event::Entered).await;
    }
    let again = ask_with(address, "GET /", "x-forwarded-for: 1.1.1.1, 198.51.100.2\r\n").await;
    assert_eq!(again.status(), 429);
}

#[tokio::test]
async fn without_the_peers_address_it_is_the_services_mistake() {
    let layer = SlotLayer::per(Locks::in_memory(), client(), 1).unwrap();
    let app = Router::new().route("/", get(|| async {}).layer(layer));
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move { axum::serve(listener, app).await.unwrap() });
    let answer = ask(address, "GET /").await;
    assert_eq!(answer.status(), 500);
    assert!(answer.body().contains("urn:latchwork:problem:setup"), "{answer:?}");
}
