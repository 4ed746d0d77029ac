//! Handlers that do not succeed, and commits that fail.

use latchwork_harness::http::Event;

use super::{Shop, is_problem, post, servers::Server};
use crate::onlooker::assert_quiet;

async fn what_does_not_succeed_is_rolled_back_and_runs_again<S: Server>() {
    let shop = Shop::open::<S>().await;
    for _ in 0..2 {
        let failed = post(shop.one.address, "/fails", "k", "").await;
        assert_eq!((failed.status(), failed.header("idempotent-replayed")), (500, None));
        is_problem(
            &post(shop.one.address, "/deferred", "k", "").await,
            500,
            "transaction-failed",
        );
    }
    assert_eq!((shop.payments().await, shop.records().await), (0, 0));
    shop.close().await;
}

async fn a_panic_stores_nothing_and_the_key_can_be_used_again<S: Server>() {
    let shop = Shop::with_pools_of::<S>(1).await;
    for _ in 0..2 {
        // Nobody catches panics here, so the connection ends without an answer.
        assert_eq!(post(shop.one.address, "/panics", "k", "").await.0, "");
        shop.is_clean().await;
        assert_eq!((shop.payments().await, shop.records().await), (0, 0));
    }
    assert_eq!(post(shop.one.address, "/payments", "k", "").await.status(), 201);
    shop.close().await;
}

async fn a_transaction_that_a_task_still_has_is_500_and_keeps_the_claim_until_it_ends<S: Server>() {
    let mut shop = Shop::open::<S>().await;
    let answer = post(shop.one.address, "/spawned", "k", "").await;
    is_problem(&answer, 500, "transaction-in-use");
    shop.one.sees(Event::Entered).await;
    let again = post(shop.other.address, "/spawned", "k", "").await;
    is_problem(&again, 409, "idempotency-in-flight");
    shop.one.lets_go(1);
    shop.one.sees(Event::Done).await;
    shop.is_clean().await;
    assert_eq!((shop.payments().await, shop.records().await), (0, 0));
    assert_quiet(&shop.cluster);
    shop.close().await;
}

on_each_framework_and_library!(
    crate::http::idempotency::servers:
    what_does_not_succeed_is_rolled_back_and_runs_again,
    a_panic_stores_nothing_and_the_key_can_be_used_again,
    a_transaction_that_a_task_still_has_is_500_and_keeps_the_claim_until_it_ends,
);
