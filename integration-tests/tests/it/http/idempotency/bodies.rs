//! Bodies of requests.

use latchwork_harness::http::{Client, Leave};

use super::{
    Shop, is_problem, post,
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
    // It says that more will come, and ends.
    let headers = "idempotency-key: k\r\nconnection: close\r\ncontent-length: 10\r\n";
    let mut lying = Client::asks(server, "POST /payments", headers).await;
    lying.send(b"four").await;
    drop(lying.leave(Leave::Fin).await);
    let at_cap = "z".repeat(CAP);
    let taken = post(server, "/payments", "k", &at_cap).await;
    assert_eq!((taken.status(), taken.body()), (201, &*at_cap));
    assert_eq!(shop.payments().await, 1);
    shop.close().await;
}

on_each_framework!(
    crate::http::idempotency::servers:
    a_body_over_the_cap_is_refused_however_it_is_sent_and_one_at_the_cap_arrives,
);
