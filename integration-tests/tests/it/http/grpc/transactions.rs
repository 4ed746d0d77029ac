//! A transaction for each call: what is stored depends on the gRPC status, since the HTTP status is 200 in any case.

use std::time::Duration;

use latchwork_harness::http::Event;
use tonic::Code;

use super::{
    Gone, Shop, asks, code, ends, leaves,
    services::{ADD, CHARGE, ORPHAN},
    spawn,
};
use crate::{
    http::tx::slow_commit,
    onlooker::{assert_quiet, loud},
};

#[tokio::test(flavor = "multi_thread")]
async fn a_call_that_succeeds_is_stored_and_one_that_fails_is_not() {
    let shop = Shop::open().await;
    for (instance, how, expected, stored) in [
        (&shop.one, "well", Code::Ok, 1),
        (&shop.one, "badly", Code::FailedPrecondition, 1),
        (&shop.other, "badly", Code::FailedPrecondition, 1),
        (&shop.other, "well", Code::Ok, 2),
    ] {
        instance.lets_go(1);
        let answer = ends(&instance.channel, CHARGE, "42", how).await;
        assert_eq!(answer.map_or_else(|status| status.code(), |_| Code::Ok), expected);
        // At once: the lock goes with the transaction, which ends before the answer.
        assert_eq!((shop.charges().await, shop.onlooker.held().await), (stored, 0));
    }
    shop.is_clean().await;
    assert_quiet(&shop.cluster);
    shop.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn one_call_an_order_at_a_time_and_its_work_is_seen_by_nobody_before() {
    let mut shop = Shop::open().await;
    let first = spawn(shop.one.channel.clone(), CHARGE);
    shop.one.sees(Event::Entered).await;
    for instance in [&shop.one, &shop.other] {
        let refused = asks(&instance.channel, CHARGE, "42").await.unwrap_err();
        assert_eq!(refused.code(), Code::Aborted, "{refused:?}");
        assert_eq!(refused.metadata().get("retry-after").unwrap(), "1");
    }
    assert_eq!((shop.charges().await, shop.onlooker.held().await), (0, 1));
    shop.one.lets_go(1);
    first.await.unwrap().unwrap();
    assert_eq!(shop.charges().await, 1);
    shop.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_fails_at_commit_is_an_internal_error_and_never_the_handlers_ok() {
    let shop = Shop::open().await;
    // More often than there are connections.
    for _ in 0..5 {
        assert_eq!(code(&shop.one.channel, ORPHAN).await, Code::Internal);
    }
    assert_eq!(shop.charges().await, 0);
    shop.is_clean().await;
    shop.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_is_gone_stores_nothing_and_frees_the_lock() {
    let mut shop = Shop::open().await;
    for how in [Gone::Cancelled, Gone::Cut, Gone::Cancelled] {
        leaves(&mut shop.one, CHARGE, how).await;
        shop.is_clean().await;
        assert_eq!(shop.charges().await, 0, "{how:?}");
    }
    shop.other.lets_go(1);
    asks(&shop.other.channel, CHARGE, "42").await.unwrap();
    shop.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_backend_that_is_killed_is_unavailable_during_the_call_and_unknown_during_commit() {
    let mut shop = Shop::open().await;
    let client = spawn(shop.one.channel.clone(), CHARGE);
    shop.one.sees(Event::Entered).await;
    shop.onlooker.terminate(shop.onlooker.holder().await).await;
    shop.is_clean().await;
    shop.one.lets_go(1);
    // The news of the end may come before COMMIT is sent or after.
    let answer = client.await.unwrap().unwrap_err();
    assert!(matches!(answer.code(), Code::Unavailable | Code::Unknown), "{answer:?}");
    assert_eq!(shop.charges().await, 0);

    shop.onlooker.0.batch_execute(&slow_commit("charges")).await.unwrap();
    shop.other.lets_go(1);
    let client = spawn(shop.other.channel.clone(), CHARGE);
    let commits = shop.onlooker.waiter().await;
    shop.onlooker.terminate(commits).await;
    assert_eq!(client.await.unwrap().unwrap_err().code(), Code::Unknown);
    shop.onlooker.value("SELECT pg_advisory_unlock(7)").await;
    shop.is_clean().await;
    shop.other.lets_go(1);
    asks(&shop.other.channel, CHARGE, "42").await.unwrap();
    assert_eq!(shop.charges().await, 1);
    shop.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_thousand_calls_that_are_cancelled_at_random_leave_nothing_and_lose_nothing() {
    const STAY: usize = 40;
    let seed = fastrand::u64(..);
    println!("seed {seed}");
    let mut random = fastrand::Rng::with_seed(seed);
    let shop = Shop::open().await;
    let channels = [&shop.one.channel, &shop.other.channel];
    // A server closes a connection on which too many calls are cancelled, so those who stay have others.
    let stays = [shop.one.own_channel(), shop.other.own_channel()];
    for round in 0..10 {
        let mut leave = tokio::task::JoinSet::new();
        for number in 0..100 {
            let (channel, pause) = (channels[number % 2].clone(), Duration::from_micros(random.u64(..8000)));
            let (path, key) = ([CHARGE, ORPHAN][random.usize(..2)], random.u8(..4).to_string());
            leave.spawn(async move {
                // Not to wait for anything: a moment as good as any other.
                let _ = tokio::time::timeout(pause, asks(&channel, path, &key)).await;
            });
        }
        // Under one key, so that each of them sees what the one before has stored.
        let stay = (0..STAY / 10).map(|number| asks(&stays[(round + number) % 2], ADD, "one"));
        for answer in futures_util::future::join_all(stay).await {
            answer.unwrap();
        }
        leave.join_all().await;
    }
    shop.is_clean().await;
    // Of those who left, no handler was let go, or COMMIT failed.
    assert_eq!(shop.charges().await, 0);
    assert_eq!(shop.onlooker.number("SELECT n FROM counter").await, STAY as i64);
    for channel in stays {
        asks(&channel, ADD, "one").await.unwrap();
    }
    shop.is_clean().await;
    let mut complaints = loud(&shop.cluster);
    complaints.retain(|line| !line.contains("violates foreign key constraint"));
    assert_eq!(complaints, Vec::<String>::new());
    shop.close().await;
}
