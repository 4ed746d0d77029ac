//! Clients that leave at any moment.

use latchwork_harness::http::{Answer, Client, Event, Leave, WAYS_TO_LEAVE};
use tokio::task::JoinHandle;

use super::{Instance, Shop, answered, asks, is_problem, post, send, servers::Server};
use crate::{http::tx::slow_commit, onlooker::eventually};

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
    for how in WAYS_TO_LEAVE {
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

async fn a_client_that_leaves_while_it_sends_has_not_asked<S: Server>() {
    let shop = Shop::with_pools_of::<S>(1).await;
    for how in WAYS_TO_LEAVE {
        let headers = "idempotency-key: k\r\nx-user: ann\r\ncontent-length: 10\r\n";
        let mut client = Client::asks(shop.one.address, "POST /payments", headers).await;
        client.send(b"half of").await;
        let _rest = client.leave(how).await;
    }
    let whole = post(shop.one.address, "/payments", "k", "half of it").await;
    assert_eq!((whole.status(), whole.header("idempotent-replayed")), (201, None));
    assert_eq!((shop.payments().await, shop.records().await), (1, 1));
    shop.close().await;
}

async fn a_client_that_leaves_while_it_waits_gives_up_its_place<S: Server>() {
    let mut shop = Shop::with_pools_of::<S>(1).await;
    let first = post_later(&shop.one, "/waits");
    shop.one.sees(Event::Entered).await;
    for how in WAYS_TO_LEAVE {
        let client = asks(
            shop.other.address,
            "/waits",
            "idempotency-key: k\r\nx-user: ann\r\n",
            "",
        )
        .await;
        shop.onlooker.waiter().await;
        let _rest = client.leave(how).await;
        // The only connection of the pool is free again long before the wait's limit.
        assert_eq!(
            post(shop.other.address, "/hasty", &format!("{how:?}"), "")
                .await
                .status(),
            201
        );
        let onlooker = &shop.onlooker;
        eventually("it has left the queue", async || onlooker.queued().await == 0).await;
    }
    // One who stays is given the response of the first.
    let stays = post_later(&shop.other, "/waits");
    shop.onlooker.waiter().await;
    shop.one.lets_go(1);
    assert_eq!(first.await.unwrap().header("idempotent-replayed"), None);
    assert_eq!(stays.await.unwrap().header("idempotent-replayed"), Some("true"));
    assert_eq!(shop.payments().await, 1 + WAYS_TO_LEAVE.len() as i64);
    shop.close().await;
}

fn post_later(instance: &Instance, path: &'static str) -> JoinHandle<Answer> {
    let server = instance.address;
    tokio::spawn(async move { post(server, path, "k", "").await })
}

async fn a_client_that_leaves_during_commit_does_not_stop_it<S: Server>() {
    let shop = Shop::open::<S>().await;
    shop.onlooker.0.batch_execute(&slow_commit("payments")).await.unwrap();
    for (how, stored) in WAYS_TO_LEAVE.into_iter().zip(1..) {
        for path in ["/payments", "/hasty"] {
            let key = format!("{how:?}");
            let headers = format!("idempotency-key: {key}\r\nx-user: ann\r\n");
            let client = asks(shop.one.address, path, &headers, "").await;
            shop.onlooker.waiter().await;
            let _rest = client.leave(how).await;
            shop.onlooker.value("SELECT pg_advisory_unlock(7)").await;
            let again = answered(&shop, path, &key, "").await;
            assert_eq!(
                (again.status(), again.header("idempotent-replayed")),
                (201, Some("true")),
                "{how:?}"
            );
            shop.onlooker.value("SELECT pg_advisory_lock(7)").await;
        }
        assert_eq!(shop.payments().await, 2 * stored);
    }
    shop.close().await;
}

on_each_framework_and_library!(
    crate::http::idempotency::servers:
    a_request_in_flight_is_refused_and_its_client_may_leave,
    a_handler_that_is_cancelled_leaves_nothing_and_the_retry_runs_at_once,
    a_client_that_leaves_while_it_sends_has_not_asked,
    a_client_that_leaves_while_it_waits_gives_up_its_place,
    a_client_that_leaves_during_commit_does_not_stop_it,
);
