//! Bodies of requests.

use std::net::SocketAddr;

use latchwork_harness::http::{Client, WAYS_TO_LEAVE};

use super::{
    Shop, answered, is_problem, post,
    servers::{CAP, Server},
};

async fn a_body_over_the_cap_is_refused_however_it_is_sent_and_one_at_the_cap_arrives<S: Server>() {
    let shop = Shop::open::<S>().await;
    let server = shop.one.address;
    let over = "y".repeat(CAP + 1);
    is_problem(&post(server, "/payments", "k", &over).await, 413, "body-too-large");
    let headers = "idempotency-key: k\r\nconnection: close\r\ntransfer-encoding: chunked\r\n";
    let mut chunked = Client::asks(server, "POST /payments", headers).await;
    chunked
        .send(format!("{:x}\r\n{over}\r\n0\r\n\r\n", over.len()).as_bytes())
        .await;
    is_problem(&chunked.answer().await, 413, "body-too-large");
    let at_cap = "z".repeat(CAP);
    let taken = post(server, "/payments", "k", &at_cap).await;
    assert_eq!((taken.status(), taken.body()), (201, &*at_cap));
    assert_eq!(shop.payments().await, 1);
    shop.close().await;
}

/// Announces a body, sends something else, and says no more.
async fn lies(server: SocketAddr, headers: &str, sent: &str) -> Client {
    let headers = format!("idempotency-key: k\r\nx-user: ann\r\n{headers}");
    let mut client = Client::asks(server, "POST /payments", &headers).await;
    client.send(sent.as_bytes()).await;
    client
}

async fn a_body_that_is_not_what_was_announced_is_no_request<S: Server>() {
    let shop = Shop::open::<S>().await;
    let server = shop.one.address;
    for (headers, sent) in [
        ("content-length: 10\r\n", "four"),
        ("transfer-encoding: chunked\r\n", "4\r\nfour\r\n"),
        ("transfer-encoding: chunked\r\n", "4\r\nfo"),
    ] {
        for how in WAYS_TO_LEAVE {
            let rest = lies(server, headers, sent).await.leave(how).await;
            if let Some(rest) = rest {
                // Whether it is told anything is the framework's affair.
                assert!(!rest.answer().await.0.contains(" 201 "), "{headers}");
            }
        }
    }
    // Not a length at all, and not a chunk.
    for (headers, sent) in [
        ("content-length: many\r\nconnection: close\r\n", "four"),
        (
            "content-length: 4\r\ncontent-length: 5\r\nconnection: close\r\n",
            "fours",
        ),
        (
            "transfer-encoding: chunked\r\nconnection: close\r\n",
            "four\r\nfour\r\n0\r\n\r\n",
        ),
    ] {
        assert_eq!(
            lies(server, headers, sent).await.answer().await.status(),
            400,
            "{headers}"
        );
    }
    assert_eq!((shop.payments().await, shop.records().await), (0, 0));
    // None of them has used the key.
    let taken = post(server, "/payments", "k", "four").await;
    assert_eq!((taken.status(), taken.header("idempotent-replayed")), (201, None));
    shop.close().await;
}

async fn what_is_sent_beyond_the_announced_length_is_not_the_bodys<S: Server>() {
    let shop = Shop::open::<S>().await;
    // What comes beyond is another request, and none. Some frameworks end the connection for it, so what counts is what
    // was carried out.
    let client = lies(shop.one.address, "content-length: 4\r\n", "four and more").await;
    let again = answered(&shop, "/payments", "k", "four").await;
    assert_eq!((again.status(), again.body()), (201, "four"));
    is_problem(
        &post(shop.other.address, "/payments", "k", "four and more").await,
        422,
        "idempotency-mismatch",
    );
    assert_eq!(shop.payments().await, 1);
    drop(client);
    shop.close().await;
}

async fn a_length_over_the_cap_is_refused_before_the_body_has_come<S: Server>() {
    let shop = Shop::open::<S>().await;
    let headers = format!("content-length: {}\r\nconnection: close\r\n", CAP + 1);
    let mut client = lies(shop.one.address, &headers, "four").await;
    let head = client.reads_until("\r\n\r\n").await;
    assert!(head.starts_with("HTTP/1.1 413"), "{head}");
    assert_eq!((shop.payments().await, shop.records().await), (0, 0));
    shop.close().await;
}

async fn bodies_of_any_bytes_arrive_as_they_are_and_chunks_are_the_same_request<S: Server>() {
    let shop = Shop::open::<S>().await;
    let sent = "a\0b\r\n0\r\n\r\nä€\u{7f}";
    let first = post(shop.one.address, "/payments", "k", sent).await;
    assert_eq!((first.status(), first.body()), (201, sent));
    let mut chunks = String::new();
    for part in sent.chars() {
        chunks += &format!("{:x}\r\n{part}\r\n", part.len_utf8());
    }
    let headers = "transfer-encoding: chunked\r\nconnection: close\r\n";
    let again = lies(shop.other.address, headers, &format!("{chunks}0\r\n\r\n"))
        .await
        .answer()
        .await;
    assert_eq!(again.header("idempotent-replayed"), Some("true"), "{again:?}");
    assert_eq!(again.body(), sent);
    shop.close().await;
}

on_each_framework!(
    crate::http::idempotency::servers:
    a_body_over_the_cap_is_refused_however_it_is_sent_and_one_at_the_cap_arrives,
    a_body_that_is_not_what_was_announced_is_no_request,
    what_is_sent_beyond_the_announced_length_is_not_the_bodys,
    a_length_over_the_cap_is_refused_before_the_body_has_come,
    bodies_of_any_bytes_arrive_as_they_are_and_chunks_are_the_same_request,
);
