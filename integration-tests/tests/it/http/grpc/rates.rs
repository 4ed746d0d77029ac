//! Rate limits.

use latchwork_harness::StopMode;
use tonic::Code;

use super::{
    Shop, asks, code,
    services::{CLOSED, OPEN},
};
use crate::onlooker::eventually;

#[tokio::test(flavor = "multi_thread")]
async fn a_burst_is_one_burst_over_both_instances_and_everybody_has_their_own() {
    let shop = Shop::open().await;
    for instance in [&shop.one, &shop.other] {
        asks(&instance.channel, OPEN, "ann").await.unwrap();
    }
    for instance in [&shop.one, &shop.other] {
        let refused = asks(&instance.channel, OPEN, "ann").await.unwrap_err();
        assert_eq!(refused.code(), Code::ResourceExhausted, "{refused:?}");
        let after = refused.metadata().get("retry-after").unwrap().to_str().unwrap();
        assert!((1..=86_400).contains(&after.parse::<u64>().unwrap()), "{after}");
    }
    asks(&shop.one.channel, OPEN, "bob").await.unwrap();
    shop.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn of_64_at_once_with_a_limit_of_two_two_get_in() {
    let shop = Shop::open().await;
    let asked = (0..64).map(|at| code([&shop.one.channel, &shop.other.channel][at % 2], OPEN));
    let mut codes = futures_util::future::join_all(asked).await;
    codes.retain(|code| *code != Code::ResourceExhausted);
    assert_eq!(codes, [Code::Ok; 2]);
    shop.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn without_the_database_open_limits_go_on_alone_and_closed_ones_are_unavailable() {
    let shop = Shop::open().await;
    let one = &shop.one.channel;
    assert_eq!(asks(one, OPEN, "ann").await.unwrap(), [0]);
    asks(one, CLOSED, "zoe").await.unwrap();
    shop.cluster.stop(StopMode::Immediate).unwrap();
    assert_eq!(asks(one, OPEN, "bob").await.unwrap(), [1]);
    asks(one, OPEN, "bob").await.unwrap();
    assert_eq!(
        asks(one, OPEN, "bob").await.unwrap_err().code(),
        Code::ResourceExhausted
    );
    assert_eq!(asks(one, CLOSED, "bob").await.unwrap_err().code(), Code::Unavailable);
    shop.cluster.restart(StopMode::Fast).unwrap();
    eventually("it works again", async || asks(one, CLOSED, "eve").await.is_ok()).await;
    shop.one.close().await;
    shop.other.close().await;
}
