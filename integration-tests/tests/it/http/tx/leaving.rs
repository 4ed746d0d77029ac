//! Clients that leave at any moment.

use std::time::Duration;

use super::{Client, Event, Shop, ask};
use crate::{
    http::client::WAYS_TO_LEAVE,
    onlooker::{assert_quiet, eventually},
};

#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_leaves_frees_the_lock_and_stores_nothing() {
    let mut shop = Shop::with_pools_of(1).await;
    for how in WAYS_TO_LEAVE {
        let client = Client::asks(shop.one.address, "POST /orders/1/charge", "").await;
        shop.one.sees(Event::Entered).await;
        assert_eq!(shop.onlooker.held().await, 1);
        let _rest = client.leave(how).await;
        shop.one.sees(Event::Dropped).await;
        shop.is_clean().await;
        assert_eq!(shop.charges().await, 0, "{how:?}");
    }
    shop.one.lets_go(1);
    assert_eq!(ask(shop.one.address, "POST /orders/1/charge").await.status(), 200);
    assert_quiet(&shop.cluster);
}

/// A statement that was sent runs on when its handler is dropped. ROLLBACK would wait for its end.
#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_leaves_during_a_long_statement_frees_the_lock_after_the_limit() {
    let shop = Shop::with_pools_of(1).await;
    for how in WAYS_TO_LEAVE {
        let client = Client::asks(shop.one.address, "POST /orders/1/asleep", "").await;
        let onlooker = &shop.onlooker;
        let asleep = "SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'PgSleep'";
        eventually("it sleeps", async || onlooker.number(asleep).await == 1).await;
        let _rest = client.leave(how).await;
        shop.is_clean().await;
        assert_eq!(shop.charges().await, 0, "{how:?}");
        assert_eq!(ask(shop.one.address, "POST /add").await.status(), 200);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_request_that_is_to_complete_does_and_is_stored() {
    let mut shop = Shop::with_pools_of(1).await;
    for (how, stored) in WAYS_TO_LEAVE.into_iter().zip(1..) {
        let client = Client::asks(shop.one.address, "POST /orders/1/complete", "").await;
        shop.one.sees(Event::Entered).await;
        let _rest = client.leave(how).await;
        shop.one.lets_go(1);
        shop.one.sees(Event::Done).await;
        shop.is_clean().await;
        assert_eq!(shop.charges().await, stored, "{how:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_leaves_while_it_waits_for_the_lock_gives_up_its_place() {
    let shop = Shop::with_pools_of(1).await;
    for how in WAYS_TO_LEAVE {
        let key = latchwork_core::Namespace::unnamed().key("counter").unwrap();
        let key = key.as_bigint().unwrap();
        let taken = format!("BEGIN; SELECT pg_advisory_xact_lock({key})");
        shop.onlooker.0.batch_execute(&taken).await.unwrap();
        let client = Client::asks(shop.one.address, "POST /add", "").await;
        let onlooker = &shop.onlooker;
        eventually("it queues", async || onlooker.queued().await == 1).await;
        let _rest = client.leave(how).await;
        // The only connection of the pool is free again long before the wait's limit.
        assert_eq!(ask(shop.one.address, "POST /status/200").await.status(), 200);
        eventually("it has left the queue", async || onlooker.queued().await == 0).await;
        shop.onlooker.0.batch_execute("ROLLBACK").await.unwrap();
        shop.is_clean().await;
    }
    assert_eq!(shop.onlooker.number("SELECT n FROM counter").await, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_thousand_clients_that_leave_at_random_leave_nothing_and_no_half_stored_work() {
    let seed = fastrand::u64(..);
    println!("seed {seed}");
    let mut random = fastrand::Rng::with_seed(seed);
    let shop = Shop::with_pools_of(4).await;
    for _ in 0..10 {
        let mut clients = tokio::task::JoinSet::new();
        for number in 0..100 {
            let address = [shop.one.address, shop.other.address][number % 2];
            let how = WAYS_TO_LEAVE[random.usize(..3)];
            let path = ["random", "all-random"][random.usize(..2)];
            let request = format!("POST /{path}/{} HTTP/1.1\r\nhost: t\r\n\r\n", random.u8(..4)).into_bytes();
            let pause = Duration::from_micros(random.u64(..8000));
            clients.spawn(async move {
                let mut client = Client::connect(address).await;
                client.send(&request).await;
                // Not to wait for anything: a moment as good as any other.
                tokio::time::sleep(pause).await;
                let _rest = client.leave(how).await;
            });
        }
        clients.join_all().await;
    }
    shop.is_clean().await;
    let halves = "SELECT count(*) FROM (SELECT FROM charges GROUP BY id HAVING count(*) <> 2) AS half";
    assert_eq!(shop.onlooker.number(halves).await, 0);
    assert!(shop.charges().await > 0);
    for instance in [&shop.one, &shop.other] {
        assert_eq!(ask(instance.address, "POST /add").await.status(), 200);
        // No connection of the pool is in a transaction or has a lock.
        assert!(instance.pool.status().size <= 4);
    }
    shop.is_clean().await;
    assert_quiet(&shop.cluster);
}
