//! A database that dies, and pools that are too small.

use latchwork_harness::http::{Client, Event};

use super::{Shop, asks, is_problem, post, send, servers::Server};
use crate::onlooker::eventually;

async fn the_servers_end_of_the_session_takes_the_claim_along<S: Server>() {
    let mut shop = Shop::open::<S>().await;
    let client = asks(shop.one.address, "/slow", "idempotency-key: k\r\n", "").await;
    shop.one.sees(Event::Entered).await;
    shop.cluster
        .psql("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE state = 'idle in transaction'")
        .unwrap();
    // The server is only told to end it by then.
    let onlooker = &shop.onlooker;
    eventually("the session has ended", async || onlooker.held().await == 0).await;
    shop.other.lets_go(1);
    let again = send(shop.other.address, "/slow", "idempotency-key: k\r\n", "").await;
    assert_eq!((again.status(), again.header("idempotent-replayed")), (200, None));
    shop.one.lets_go(1);
    let first = client.answer().await;
    assert!(matches!(first.status(), 500 | 503), "{first:?}");
    assert_eq!((shop.payments().await, shop.records().await), (1, 1));
    shop.close().await;
}

async fn without_the_table_requests_are_refused_in_time_and_nothing_else_is<S: Server>() {
    let shop = Shop::open::<S>().await;
    shop.cluster.psql("DROP TABLE latchwork.idempotency").unwrap();
    is_problem(&post(shop.one.address, "/payments", "k", "").await, 503, "unavailable");
    let free = Client::asks(shop.one.address, "GET /free", "connection: close\r\n").await;
    assert_eq!(free.answer().await.status(), 200);
    shop.close().await;
}

on_each_framework!(
    crate::http::idempotency::servers:
    the_servers_end_of_the_session_takes_the_claim_along,
    without_the_table_requests_are_refused_in_time_and_nothing_else_is,
);
