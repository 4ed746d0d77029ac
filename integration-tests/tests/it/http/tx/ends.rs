//! What is stored, and what the client is told of it.

use super::{Client, Shop, ask, is_problem, servers::Server};
use crate::onlooker::assert_quiet;

async fn success_is_stored_and_everything_else_is_not<S: Server>() {
    let shop = Shop::open::<S>().await;
    let mut stored = 0;
    for (code, stores) in [
        (200, true),
        (201, true),
        (204, true),
        (303, true),
        (400, false),
        (404, false),
        (409, false),
        (422, false),
        (500, false),
        (503, false),
    ] {
        let answer = ask(shop.one.address, &format!("POST /status/{code}")).await;
        stored += i64::from(stores);
        assert_eq!((answer.status(), shop.charges().await), (code, stored));
        assert!(!answer.0.contains("urn:latchwork"), "{answer:?}");
    }
    shop.is_clean().await;
    assert_quiet(&shop.cluster);
    shop.close().await;
}

async fn what_fails_at_commit_is_500_and_the_connection_is_used_again<S: Server>() {
    let shop = Shop::with_pools_of::<S>(1).await;
    let backends = "SELECT pid FROM pg_stat_activity WHERE backend_type = 'client backend' AND pid <> pg_backend_pid()";
    let mut pids = Vec::new();
    for request in ["POST /orphan", "POST /swallowed", "POST /orphan"] {
        let answer = ask(shop.one.address, request).await;
        assert!(is_problem(&answer, 500, "transaction-failed"), "{request} {answer:?}");
        assert_eq!(answer.header("retry-after"), None);
        pids.push(shop.onlooker.value(backends).await);
        shop.is_clean().await;
    }
    assert!(pids.iter().all(|pid| *pid == pids[0]), "{pids:?}");
    assert_eq!(shop.charges().await, 0);
    // A handler that can undo its error is no failure.
    assert_eq!(ask(shop.one.address, "POST /savepoint").await.status(), 200);
    assert_eq!(shop.charges().await, 1);
    shop.close().await;
}

async fn a_handler_that_ends_the_transaction_itself_is_500_and_says_that_nobody_knows<S: Server>() {
    let shop = Shop::open::<S>().await;
    for how in ["COMMIT", "ROLLBACK", "COMMIT%3BBEGIN", "ROLLBACK%3BBEGIN"] {
        let answer = ask(shop.one.address, &format!("POST /ended/{how}")).await;
        assert!(is_problem(&answer, 500, "transaction-unknown"), "{how} {answer:?}");
        shop.is_clean().await;
    }
    shop.close().await;
}

async fn a_panic_stores_nothing<S: Server>() {
    let shop = Shop::with_pools_of::<S>(1).await;
    // Nobody catches panics here, so the connection ends without an answer.
    let client = Client::asks(shop.one.address, "POST /panics", "connection: close\r\n").await;
    assert_eq!(client.answer().await.0, "");
    shop.is_clean().await;
    assert_eq!(shop.charges().await, 0);
    assert_eq!(ask(shop.one.address, "POST /status/200").await.status(), 200);
    shop.close().await;
}

on_each_framework_and_library!(
    crate::http::tx::servers:
    success_is_stored_and_everything_else_is_not,
    what_fails_at_commit_is_500_and_the_connection_is_used_again,
    a_handler_that_ends_the_transaction_itself_is_500_and_says_that_nobody_knows,
    a_panic_stores_nothing,
);
