//! Handlers that do not succeed, and commits that fail.

use super::{Shop, is_problem, post, servers::Server};

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

on_each_framework!(
    crate::http::idempotency::servers:
    what_does_not_succeed_is_rolled_back_and_runs_again,
);
