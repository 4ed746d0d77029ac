//! Locks and slots.

use std::time::{Duration, Instant};

use latchwork_harness::{StopMode, http::Event};
use tonic::Code;

use super::{
    Gone, Shop, asks, code, ends, leaves,
    services::{ORDER, STREAM},
    spawn,
};
use crate::onlooker::{Onlooker, eventually};

#[tokio::test(flavor = "multi_thread")]
async fn one_call_an_order_at_a_time_over_two_instances() {
    let mut shop = Shop::open().await;
    let first = spawn(shop.one.channel.clone(), ORDER);
    shop.one.sees(Event::Entered).await;
    for instance in [&shop.one, &shop.other] {
        let refused = asks(&instance.channel, ORDER, "42").await.unwrap_err();
        assert_eq!(refused.code(), Code::Aborted, "{refused:?}");
        assert_eq!(refused.metadata().get("retry-after").unwrap(), "1");
    }
    assert_eq!(shop.onlooker.held().await, 1);
    shop.other.lets_go(2);
    asks(&shop.other.channel, ORDER, "7").await.unwrap();
    shop.one.lets_go(1);
    first.await.unwrap().unwrap();
    let onlooker = &shop.onlooker;
    eventually("the lock is given up", async || onlooker.held().await == 0).await;
    // An error of the handler's passes, and gives the lock up too.
    let failed = ends(&shop.other.channel, ORDER, "42", "badly").await.unwrap_err();
    assert_eq!(failed.code(), Code::FailedPrecondition);
    eventually("the lock is given up", async || onlooker.held().await == 0).await;
    shop.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn never_more_than_one_slot_over_two_instances() {
    let mut shop = Shop::open().await;
    let first = spawn(shop.one.channel.clone(), STREAM);
    shop.one.sees(Event::Entered).await;
    for instance in [&shop.one, &shop.other] {
        assert_eq!(code(&instance.channel, STREAM).await, Code::ResourceExhausted);
    }
    shop.one.lets_go(1);
    first.await.unwrap().unwrap();
    shop.other.lets_go(1);
    // The client has the trailers a moment before the server drops the body.
    let other = &shop.other.channel;
    eventually("there is room", async || code(other, STREAM).await == Code::Ok).await;
    shop.one.sees(Event::Done).await;
    shop.other.sees(Event::Entered).await;
    shop.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_is_gone_frees_its_lock_and_its_slot_in_the_server() {
    let mut shop = Shop::open().await;
    for path in [ORDER, STREAM] {
        for how in [Gone::Cancelled, Gone::Cut] {
            leaves(&mut shop.one, path, how).await;
            shop.other.lets_go(1);
            let other = &shop.other.channel;
            eventually("others get in", async || code(other, path).await == Code::Ok).await;
        }
    }
    shop.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_killed_backend_is_unavailable_and_frees_the_lock() {
    let mut shop = Shop::open().await;
    let client = spawn(shop.one.channel.clone(), ORDER);
    shop.one.sees(Event::Entered).await;
    shop.onlooker.terminate(shop.onlooker.holder().await).await;
    shop.one.sees(Event::Dropped).await;
    assert_eq!(client.await.unwrap().unwrap_err().code(), Code::Unavailable);
    let onlooker = &shop.onlooker;
    eventually("the server has freed the lock", async || onlooker.held().await == 0).await;
    for instance in [&shop.other, &shop.one] {
        instance.lets_go(1);
        eventually("it works again", async || {
            code(&instance.channel, ORDER).await == Code::Ok
        })
        .await;
    }
    shop.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_database_that_is_down_is_unavailable_in_time_and_never_busy() {
    let mut shop = Shop::open().await;
    shop.cluster.stop(StopMode::Immediate).unwrap();
    for path in [ORDER, STREAM, super::services::CHARGE] {
        for instance in [&shop.one, &shop.other] {
            let begun = Instant::now();
            assert_eq!(code(&instance.channel, path).await, Code::Unavailable, "{path}");
            assert!(begun.elapsed() < Duration::from_secs(8), "{path} {:?}", begun.elapsed());
        }
    }
    shop.cluster.restart(StopMode::Fast).unwrap();
    shop.onlooker = Onlooker::new(&shop.cluster.url()).await;
    for path in [ORDER, STREAM, super::services::CHARGE] {
        shop.one.lets_go(1);
        let one = &shop.one.channel;
        eventually("it works again", async || code(one, path).await == Code::Ok).await;
    }
    shop.close().await;
}
