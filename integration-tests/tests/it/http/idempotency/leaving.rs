//! Clients that leave at any moment.

use latchwork_harness::http::{Event, Leave};

use super::{Shop, asks, is_problem, send, servers::Server};
use crate::onlooker::eventually;

async fn a_request_in_flight_is_refused_and_its_client_may_leave<S: Server>() {
    let mut shop = Shop::open::<S>().await;
    let client = asks(shop.one.address, "/slow", "idempotency-key: k\r\n", "").await;
    shop.one.sees(Event::Entered).await;
    let refused = send(shop.other.address, "/slow", "idempotency-key: k\r\n", "").await;
    is_problem(&refused, 409, "idempotency-in-flight");
    assert_eq!(refused.header("retry-after"), Some("1"));
    drop(client.leave(Leave::Rst).await);
    shop.one.lets_go(1);
    shop.one.sees(Event::Done).await;
    eventually("the response is kept", async || shop.records().await == 1).await;
    let again = send(shop.other.address, "/slow", "idempotency-key: k\r\n", "").await;
    assert_eq!(
        (again.status(), again.header("idempotent-replayed")),
        (200, Some("true"))
    );
    assert_eq!(shop.payments().await, 1);
    shop.close().await;
}

async fn a_handler_that_is_cancelled_leaves_nothing_and_the_retry_runs_at_once<S: Server>() {
    let mut shop = Shop::open::<S>().await;
    for how in [Leave::Fin, Leave::Rst] {
        let client = asks(shop.one.address, "/leaves", "idempotency-key: k\r\n", "").await;
        shop.one.sees(Event::Entered).await;
        drop(client.leave(how).await);
        shop.one.sees(Event::Dropped).await;
        let onlooker = &shop.onlooker;
        eventually("it is rolled back", async || onlooker.held().await == 0).await;
        assert_eq!((shop.payments().await, shop.records().await), (0, 0));
    }
    shop.other.lets_go(1);
    assert_eq!(
        send(shop.other.address, "/leaves", "idempotency-key: k\r\n", "")
            .await
            .status(),
        200
    );
    shop.close().await;
}

on_each_framework!(
    crate::http::idempotency::servers:
    a_request_in_flight_is_refused_and_its_client_may_leave,
    a_handler_that_is_cancelled_leaves_nothing_and_the_retry_runs_at_once,
);
