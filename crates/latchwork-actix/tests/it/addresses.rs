//! Keys by client, over real connections.

use std::net::SocketAddr;

use actix_web::web;
use latchwork_actix::{
    SlotMiddleware,
    key::{ClientAddress, client},
};
use latchwork_core::Locks;
use latchwork_harness::http::{Client, Event, Watcher, ask_with, stage};

use crate::support::serve;

fn one_a_client(key: ClientAddress) -> (SocketAddr, Watcher) {
    let (stage, watcher) = stage();
    let one = SlotMiddleware::per(Locks::in_memory(), ("client", key), 1).unwrap();
    let address = serve(move |routes| {
        let stage = stage.clone();
        let handler = move || {
            let stage = stage.clone();
            async move {
                stage.play().await;
                "done"
            }
        };
        routes.service(web::resource("/").wrap(one.clone()).route(web::get().to(handler)));
    });
    (address, watcher)
}

#[actix_web::test]
async fn forged_headers_from_one_peer_are_one_client() {
    let (address, mut watcher) = one_a_client(client());
    let _first = Client::asks(address, "GET /", "x-forwarded-for: 198.51.100.1\r\n").await;
    watcher.sees(Event::Entered).await;
    for hop in 2..6 {
        let answer = ask_with(address, "GET /", &format!("x-forwarded-for: 198.51.100.{hop}\r\n")).await;
        assert_eq!(answer.status(), 429);
        assert_eq!(answer.header("retry-after"), Some("1"));
    }
}

#[actix_web::test]
async fn behind_a_trusted_proxy_clients_are_told_apart() {
    let (address, mut watcher) = one_a_client(client().behind(["127.0.0.0/8", "::1"]));
    let mut inside = Vec::new();
    for hop in 1..4 {
        inside.push(Client::asks(address, "GET /", &format!("x-forwarded-for: 198.51.100.{hop}\r\n")).await);
        watcher.sees(Event::Entered).await;
    }
    let again = ask_with(address, "GET /", "x-forwarded-for: 1.1.1.1, 198.51.100.2\r\n").await;
    assert_eq!(again.status(), 429);
}
