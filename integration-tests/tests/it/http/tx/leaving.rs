//! Clients that leave at any moment.

use latchwork_harness::http::{Leave, WAYS_TO_LEAVE};

use super::{
    Client, Event, Library as _, Shop, ask,
    servers::{ActixByDefault, Server},
};
use crate::onlooker::{assert_quiet, eventually};

async fn a_client_that_leaves_frees_the_lock_and_stores_nothing<S: Server>() {
    let mut shop = Shop::with_pools_of::<S>(1).await;
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
    shop.close().await;
}

/// A statement that was sent runs on when its handler is dropped. ROLLBACK would wait for its end.
async fn a_client_that_leaves_during_a_long_statement_frees_the_lock_after_the_limit<S: Server>() {
    let shop = Shop::with_pools_of::<S>(S::Library::TO_END_A_SESSION).await;
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
    shop.close().await;
}

async fn a_request_that_is_to_complete_does_and_is_stored<S: Server>() {
    let mut shop = Shop::with_pools_of::<S>(1).await;
    for (how, stored) in WAYS_TO_LEAVE.into_iter().zip(1..) {
        let client = Client::asks(shop.one.address, "POST /orders/1/complete", "").await;
        shop.one.sees(Event::Entered).await;
        let _rest = client.leave(how).await;
        shop.one.lets_go(1);
        shop.one.sees(Event::Done).await;
        shop.is_clean().await;
        assert_eq!(shop.charges().await, stored, "{how:?}");
    }
    shop.close().await;
}

async fn a_client_that_leaves_while_it_waits_for_the_lock_gives_up_its_place<S: Server>() {
    let shop = Shop::with_pools_of::<S>(1).await;
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
    shop.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn by_default_actix_web_sees_only_a_reset_and_stores_what_others_have_asked_for() {
    let mut shop = Shop::with_pools_of::<ActixByDefault>(1).await;
    let mut stored = 0;
    for how in WAYS_TO_LEAVE {
        let client = Client::asks(shop.one.address, "POST /orders/1/charge", "connection: close\r\n").await;
        shop.one.sees(Event::Entered).await;
        let rest = client.leave(how).await;
        if how == Leave::Rst {
            shop.one.sees(Event::Dropped).await;
        } else {
            shop.one.lets_go(1);
            shop.one.sees(Event::Done).await;
            stored += 1;
        }
        shop.is_clean().await;
        assert_eq!(shop.charges().await, stored, "{how:?}");
        if let Some(rest) = rest {
            assert_eq!(rest.answer().await.status(), 200);
        }
    }
    assert_quiet(&shop.cluster);
    shop.close().await;
}

on_each_framework_and_library!(
    crate::http::tx::servers:
    a_client_that_leaves_frees_the_lock_and_stores_nothing,
    a_client_that_leaves_during_a_long_statement_frees_the_lock_after_the_limit,
    a_request_that_is_to_complete_does_and_is_stored,
    a_client_that_leaves_while_it_waits_for_the_lock_gives_up_its_place,
);
