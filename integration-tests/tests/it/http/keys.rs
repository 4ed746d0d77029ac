//! What requests are kept apart by.

use latchwork_harness::http::{Answer, Client, Event, ask_with};

use super::{instance::Instance, servers::Server, shop::Shop};
use crate::onlooker::eventually;

/// Asks with header lines that need not be text.
async fn ask_in_bytes(instance: &Instance, path: &str, headers: &[u8]) -> Answer {
    let mut client = Client::connect(instance.address).await;
    let head = format!("POST {path} HTTP/1.1\r\nhost: t\r\nconnection: close\r\n");
    client.send(&[head.as_bytes(), headers, b"\r\n"].concat()).await;
    client.answer().await
}

async fn a_key_that_is_missing_sent_twice_or_no_text_is_400<S: Server>() {
    let mut shop = Shop::open::<S>().await;
    for headers in [
        &b""[..],
        b"x-key:\r\n",
        b"x-key: a\r\nx-key: a\r\n",
        b"x-key: a\r\nX-KEY: b\r\n",
        b"x-key: \xfc\r\n",
        b"x-key: a\xff\r\n",
    ] {
        let answer = ask_in_bytes(&shop.one, "/by-header", headers).await;
        assert_eq!(answer.status(), 400, "{headers:?}");
        assert!(answer.0.contains("urn:latchwork:problem:bad-key"), "{answer:?}");
    }
    assert!(shop.one.has_seen_nothing());
    shop.close().await;
}

/// Holds the lock on one key, and asks for others on the other instance.
async fn a_key_is_taken_byte_for_byte_and_its_parts_do_not_run_into_each_other<S: Server>() {
    let mut shop = Shop::open::<S>().await;
    for (path, key, same, others) in [
        (
            "/by-header",
            "x-key: ü-1\r\n",
            "X-Key:   ü-1  \r\n",
            &["x-key: u-1\r\n", "x-key: Ü-1\r\n", "x-key: ü-1,\r\n"][..],
        ),
        (
            "/by-pair",
            "x-a: ab\r\nx-b: c\r\n",
            "x-b: c\r\nx-a: ab\r\n",
            &["x-a: a\r\nx-b: bc\r\n", "x-a: c\r\nx-b: ab\r\n"],
        ),
    ] {
        let first = Client::asks(
            shop.one.address,
            &format!("POST {path}"),
            &format!("{key}connection: close\r\n"),
        )
        .await;
        shop.one.sees(Event::Entered).await;
        assert_eq!(
            ask_in_bytes(&shop.other, path, same.as_bytes()).await.status(),
            409,
            "{same}"
        );
        shop.other.lets_go(others.len());
        for other in others {
            assert_eq!(
                ask_in_bytes(&shop.other, path, other.as_bytes()).await.status(),
                200,
                "{other}"
            );
        }
        shop.one.lets_go(1);
        assert_eq!(first.answer().await.status(), 200);
        shop.one.sees(Event::Done).await;
    }
    shop.close().await;
}

async fn forged_headers_from_one_peer_are_one_client<S: Server>() {
    let mut shop = Shop::open::<S>().await;
    let first = Client::asks(shop.one.address, "GET /by-client", "connection: close\r\n").await;
    shop.one.sees(Event::Entered).await;
    for hop in 1..5 {
        let forged = format!("x-forwarded-for: 198.51.100.{hop}\r\nforwarded: for=198.51.100.{hop}\r\n");
        for instance in [&shop.one, &shop.other] {
            let answer = ask_with(instance.address, "GET /by-client", &forged).await;
            assert_eq!((answer.status(), answer.header("retry-after")), (429, Some("1")));
        }
    }
    shop.one.lets_go(1);
    assert_eq!(first.answer().await.status(), 200);
    shop.close().await;
}

async fn behind_a_trusted_proxy_clients_are_told_apart_by_the_hop_that_it_has_seen<S: Server>() {
    let mut shop = Shop::open::<S>().await;
    let path = "GET /by-proxied-client";
    let mut inside = Vec::new();
    for hop in 1..4 {
        let headers = format!("connection: close\r\nx-forwarded-for: 198.51.100.{hop}\r\n");
        inside.push(Client::asks(shop.one.address, path, &headers).await);
        shop.one.sees(Event::Entered).await;
    }
    // What its client wrote before is worth nothing.
    let forged = "x-forwarded-for: 203.0.113.9, 198.51.100.2\r\n";
    let other = shop.other.address;
    assert_eq!(ask_with(other, path, forged).await.status(), 429);
    shop.one.lets_go(3);
    for client in inside {
        assert_eq!(client.answer().await.status(), 200);
    }
    shop.other.lets_go(1);
    eventually("its slot is free", async || {
        ask_with(other, path, forged).await.status() == 200
    })
    .await;
    shop.close().await;
}

on_each_framework!(
    crate::http::servers:
    a_key_that_is_missing_sent_twice_or_no_text_is_400,
    a_key_is_taken_byte_for_byte_and_its_parts_do_not_run_into_each_other,
    forged_headers_from_one_peer_are_one_client,
    behind_a_trusted_proxy_clients_are_told_apart_by_the_hop_that_it_has_seen,
);
