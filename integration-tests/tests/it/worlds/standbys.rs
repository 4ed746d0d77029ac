//! Hot standbys, before and after they become something else.

use latchwork_core::AcquireError;
use latchwork_harness::{Cluster, StopMode};
use latchwork_postgres::{Config, Postgres};

use crate::onlooker::{Onlooker, SOON, assert_quiet, chain, connect, eventually, quick};

#[tokio::test(flavor = "multi_thread")]
async fn a_hot_standby_is_refused_until_it_is_promoted() {
    let primary = Cluster::start().unwrap();
    let standby = primary.standby().unwrap();
    let config: Config = standby.url().parse().unwrap();
    let error = Postgres::connect(config.clone(), quick()).await.unwrap_err();
    let advice = [
        "hot standby",
        "connect to the primary",
        "target_session_attrs=read-write",
    ];
    assert!(
        advice.iter().all(|part| chain(&error).contains(part)),
        "{}",
        chain(&error)
    );

    let locks = Postgres::connect_in_background(config, quick()).locks();
    let error = locks.acquire("job").without_limit().await.unwrap_err();
    assert!(
        matches!(error, AcquireError::Refused { .. }) && error.is_outage(),
        "{error:?}"
    );
    assert!(
        advice.iter().all(|part| chain(&error).contains(part)),
        "{}",
        chain(&error)
    );
    let error = locks.slots("pool", 1).unwrap().try_acquire().await.unwrap_err();
    assert!(matches!(error, AcquireError::Refused { .. }), "{error:?}");
    assert_quiet(&standby);

    standby.promote().unwrap();
    eventually("it is good for locks now", async || {
        locks.try_acquire("job").await.is_ok_and(|guard| guard.is_some())
    })
    .await;
    assert_eq!(Onlooker::new(&primary.url()).await.held().await, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_failover_loses_what_was_held_and_the_next_lock_is_on_the_new_primary() {
    let primary = Cluster::start().unwrap();
    let standby = primary.standby().unwrap();
    let (hosts, ports) = (
        format!("{},{}", standby.host(), primary.host()),
        format!("{},{}", standby.port(), primary.port()),
    );
    let url = format!("host={hosts} port={ports} user=postgres dbname=postgres target_session_attrs=read-write");
    let (one, other) = (
        connect(&url, quick()).await.locks(),
        connect(&url, quick()).await.locks(),
    );
    let guard = one.try_acquire("job").await.unwrap().unwrap();
    let waiting = tokio::spawn(other.acquire("job").within(SOON * 2));
    Onlooker::new(&primary.url()).await.waiter().await;
    primary.stop(StopMode::Immediate).unwrap();
    guard.lost().await;
    guard.release().await.unwrap_err();
    standby.promote().unwrap();
    let guard = waiting.await.unwrap().unwrap();
    let onlooker = Onlooker::new(&standby.url()).await;
    assert_eq!(onlooker.held().await, 1);
    eventually("the first one is there too", async || {
        one.try_acquire("job").await.is_ok_and(|guard| guard.is_none())
    })
    .await;
    guard.release().await.unwrap();
    one.acquire("job").within(SOON).await.unwrap().release().await.unwrap();
}
