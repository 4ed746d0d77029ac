//! Work outside the database.

use std::sync::atomic::Ordering;

use latchwork_harness::http::{Event, Leave};

use super::{Shop, asks, is_problem, post, send, servers::Server};
use crate::onlooker::eventually;

async fn work_outside_the_database_is_done_once_and_nobody_guesses_how_it_ended<S: Server>() {
    let mut shop = Shop::open::<S>().await;
    let server = shop.one.address;
    for replayed in [None, Some("true")] {
        let sent = post(server, "/mails", "k", "hello").await;
        assert_eq!((sent.status(), sent.header("idempotent-replayed")), (202, replayed));
    }
    assert_eq!(shop.one.mails.load(Ordering::SeqCst), 1);
    for _ in 0..2 {
        assert_eq!(post(server, "/mails", "bounced", "bounces").await.status(), 502);
    }
    assert_eq!(shop.one.mails.load(Ordering::SeqCst), 3);

    let client = asks(server, "/slow-mails", "idempotency-key: k\r\n", "").await;
    shop.one.sees(Event::Entered).await;
    let refused = send(shop.other.address, "/slow-mails", "idempotency-key: k\r\n", "").await;
    is_problem(&refused, 409, "idempotency-in-flight");
    drop(client.leave(Leave::Rst).await);
    shop.one.sees(Event::Dropped).await;
    let onlooker = &shop.onlooker;
    eventually("the lock is given up", async || onlooker.held().await == 0).await;
    let unknown = send(shop.other.address, "/slow-mails", "idempotency-key: k\r\n", "").await;
    is_problem(&unknown, 409, "idempotency-unknown");
    assert_eq!(shop.other.mails.load(Ordering::SeqCst), 0);
    shop.close().await;
}

async fn who_repeats_work_outside_the_database_at_once_with_others_is_given_the_response<S: Server>() {
    let shop = Shop::open::<S>().await;
    assert_eq!(post(shop.one.address, "/mails", "k", "hello").await.status(), 202);
    let asks = (0..32).map(|at| {
        let instance = if at % 2 == 0 { &shop.one } else { &shop.other };
        post(instance.address, "/mails", "k", "hello")
    });
    for answer in futures_util::future::join_all(asks).await {
        assert_eq!(
            (answer.status(), answer.header("idempotent-replayed")),
            (202, Some("true"))
        );
    }
    shop.close().await;
}

async fn work_outside_the_database_whose_end_is_not_stored_is_not_said_to_be_undone<S: Server>() {
    let mut shop = Shop::open::<S>().await;
    let client = asks(shop.one.address, "/slow-mails", "idempotency-key: k\r\n", "").await;
    shop.one.sees(Event::Entered).await;
    shop.cluster.psql("DROP TABLE latchwork.idempotency").unwrap();
    shop.one.lets_go(1);
    let answer = client.answer().await;
    is_problem(&answer, 500, "transaction-unknown");
    assert_eq!(answer.header("retry-after"), None);
    shop.close().await;
}

on_each_framework!(
    crate::http::idempotency::servers:
    work_outside_the_database_is_done_once_and_nobody_guesses_how_it_ended,
    who_repeats_work_outside_the_database_at_once_with_others_is_given_the_response,
    work_outside_the_database_whose_end_is_not_stored_is_not_said_to_be_undone,
);
