//! A database that is away: nobody waits for it, nobody is denied for it unless limits say so, and it is told.

use std::time::{Duration, Instant};

use latchwork_core::rate::{OnOutage, Quota, RateLimits, RateLimitsOptions};
use latchwork_harness::{Cluster, Proxy, Signal, StopMode};
use latchwork_postgres::RateOptions;

use super::{charge_at_once, installed, patient, process, rarely, rows};
use crate::onlooker::{Onlooker, SOON, connect, eventually, quick};

fn closed() -> RateLimitsOptions {
    RateLimitsOptions::default().with_on_outage(OnOutage::Closed)
}

/// Nothing comes back, and it is not used up either.
fn plenty() -> Quota {
    Quota::per_hour(1).unwrap().with_burst(80_000).unwrap()
}

/// Whether the database decides.
async fn is_shared(rates: &RateLimits) -> bool {
    let decision = rates.check("probe", Quota::per_second(1_000).unwrap(), 0).await;
    decision.is_ok_and(|decision| !decision.is_degraded())
}

async fn assert_open(rates: &RateLimits) {
    for number in 0..5 {
        let decision = rates.check("outage", rarely(3), 1).await.unwrap();
        assert!(decision.is_degraded(), "{decision:?}");
        assert_eq!(decision.is_allowed(), number < 3, "{decision:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn open_goes_on_alone_closed_fails_and_both_come_back() {
    let (cluster, onlooker) = installed().await;
    let (open, shut) = (
        process(&cluster, patient()).await,
        process(&cluster, patient().with_limits(closed())).await,
    );
    assert!(is_shared(&open).await && is_shared(&shut).await);
    drop(onlooker);
    cluster.kill_server().unwrap();
    let begun = Instant::now();
    assert_open(&open).await;
    for _ in 0..20 {
        let error = shut.check("key", rarely(1), 1).await.unwrap_err();
        assert!(error.is_outage(), "{error:?}");
    }
    assert!(begun.elapsed() < SOON, "{:?}", begun.elapsed());
    assert_eq!((open.stats().outages, open.stats().is_outage), (1, true));
    assert_eq!(shut.stats().denied, 0);
    cluster.restart(StopMode::Fast).unwrap();
    eventually("the database decides again", async || {
        is_shared(&open).await && is_shared(&shut).await
    })
    .await;
    assert!(!open.stats().is_outage && !shut.stats().is_outage);
    assert_eq!(charge_at_once(&open, "again", rarely(5), 20).await, 5);
}

#[tokio::test(flavor = "multi_thread")]
async fn after_a_crash_the_unlogged_table_is_empty_and_limits_begin_afresh() {
    let (cluster, onlooker) = installed().await;
    let rates = process(&cluster, patient()).await;
    assert_eq!(charge_at_once(&rates, "key", rarely(3), 10).await, 3);
    assert_eq!(rows(&onlooker).await, 1);
    cluster.kill_server().unwrap();
    cluster.restart(StopMode::Fast).unwrap();
    eventually("the database decides again", async || is_shared(&rates).await).await;
    let onlooker = Onlooker::new(&cluster.url()).await;
    let charged = "SELECT count(*) FROM latchwork.rate_limits WHERE tat2 IS NULL AND admitted >= 1";
    assert_eq!(onlooker.number(charged).await, 0);
    // What this process remembers of the denial it keeps; another knows nothing of it.
    let other = process(&cluster, patient()).await;
    assert_eq!(charge_at_once(&other, "key", rarely(3), 10).await, 3);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_orderly_restart_keeps_what_was_charged() {
    let (cluster, onlooker) = installed().await;
    let rates = process(&cluster, patient()).await;
    assert_eq!(charge_at_once(&rates, "key", rarely(3), 2).await, 2);
    drop(onlooker);
    cluster.restart(StopMode::Fast).unwrap();
    eventually("the database decides again", async || is_shared(&rates).await).await;
    assert_eq!(charge_at_once(&rates, "key", rarely(3), 5).await, 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_is_silent_holds_nobody_for_longer_than_an_answer_may_take() {
    let (cluster, onlooker) = installed().await;
    let limit = Duration::from_millis(300);
    let open = process(&cluster, RateOptions::default().with_answer_within(limit)).await;
    let shut = process(
        &cluster,
        RateOptions::default().with_answer_within(limit).with_limits(closed()),
    )
    .await;
    eventually("both are connected", async || {
        is_shared(&open).await && is_shared(&shut).await
    })
    .await;
    let sessions = onlooker.sessions("query LIKE 'WITH clock%'").await;
    assert_eq!(sessions.len(), 2, "{sessions:?}");
    for pid in &sessions {
        cluster.signal_backend(*pid, Signal::STOP).unwrap();
    }
    for _ in 0..2 {
        let begun = Instant::now();
        assert!(open.check("key", rarely(10), 1).await.unwrap().is_degraded());
        assert!(shut.check("key", rarely(10), 1).await.unwrap_err().is_outage());
        // The machine may be busy; a silent session is given up only after seconds.
        assert!(begun.elapsed() < Duration::from_secs(2), "{:?}", begun.elapsed());
    }
    let begun = Instant::now();
    assert_open(&open).await;
    assert!(
        begun.elapsed() < limit,
        "it is known by now, and yet it took {:?}",
        begun.elapsed()
    );
    for pid in &sessions {
        cluster.signal_backend(*pid, Signal::CONT).unwrap();
    }
    eventually("the database decides again", async || {
        is_shared(&open).await && is_shared(&shut).await
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_cannot_be_reached_from_the_start_holds_nobody() {
    let cluster = Cluster::start().unwrap();
    let postgres = connect(&cluster.url(), quick()).await;
    cluster.stop(StopMode::Fast).unwrap();
    let rates = postgres.rate_limits(RateOptions::default());
    assert_open(&rates).await;
    assert_eq!(rates.stats().outages, 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn killed_under_load_nobody_is_lost_and_what_the_server_confirmed_is_never_too_much() {
    let (cluster, onlooker) = installed().await;
    let rates = process(&cluster, patient().with_limits(closed().with_denials(0))).await;
    let tasks: Vec<_> = (0..32)
        .map(|_| {
            let rates = rates.clone();
            tokio::spawn(async move {
                let (mut confirmed, mut outages) = (0, 0);
                while outages < 50 {
                    match rates.check("key", plenty(), 1).await {
                        Ok(decision) => confirmed += u32::from(decision.is_allowed()),
                        Err(error) => {
                            assert!(error.is_outage(), "{error:?}");
                            outages += 1;
                            tokio::time::sleep(Duration::from_millis(1)).await;
                        }
                    }
                }
                confirmed
            })
        })
        .collect();
    eventually("it works", async || rates.stats().allowed > 1_000).await;
    drop(onlooker);
    cluster.stop(StopMode::Fast).unwrap();
    let mut confirmed = 0;
    for task in tasks {
        confirmed += task.await.unwrap();
    }
    cluster.restart(StopMode::Fast).unwrap();
    eventually("the database decides again", async || is_shared(&rates).await).await;
    let left = rates.check("key", plenty(), 0).await.unwrap().remaining();
    // What was on the wire at the end may have been charged without anybody having been told.
    assert!(
        confirmed <= 80_000 - left && 80_000 - left <= confirmed + 32 * 2,
        "{confirmed}, {left} left"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn closing_ends_the_session_and_so_does_the_last_clone() {
    let (cluster, onlooker) = installed().await;
    let postgres = connect(&cluster.url(), quick()).await;
    let sessions = async || onlooker.sessions("query LIKE 'WITH clock%'").await.len();
    let rates = postgres.rate_limits(patient());
    assert!(is_shared(&rates).await);
    assert_eq!(sessions().await, 1);
    rates.close().await;
    eventually("it is closed", async || sessions().await == 0).await;
    assert!(rates.check("key", rarely(1), 1).await.unwrap_err().is_outage());
    let (rates, others) = (postgres.rate_limits(patient()), postgres.rate_limits(patient()));
    assert!(is_shared(&rates).await && is_shared(&others).await);
    let clone = rates.clone();
    drop((rates, others));
    assert!(is_shared(&clone).await);
    eventually("one is left", async || sessions().await == 1).await;
    drop(clone);
    eventually("none is left", async || sessions().await == 0).await;
    // The locks are another matter.
    assert!(postgres.locks().try_acquire("key").await.unwrap().is_some());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_network_that_stops_forwarding_is_an_outage_too() {
    let (cluster, _onlooker) = installed().await;
    let proxy = Proxy::start(cluster.endpoint()).unwrap();
    let limit = Duration::from_millis(300);
    let rates = connect(&proxy.url(), quick())
        .await
        .rate_limits(RateOptions::default().with_answer_within(limit));
    eventually("it is connected", async || is_shared(&rates).await).await;
    proxy.freeze();
    let begun = Instant::now();
    let checks = (0..100).map(|_| tokio::spawn(rates.check("key", rarely(1_000), 1)));
    for check in checks.collect::<Vec<_>>() {
        assert!(check.await.unwrap().unwrap().is_degraded());
    }
    assert!(begun.elapsed() < Duration::from_secs(2), "{:?}", begun.elapsed());
    // The session is given up, and the next attempt to connect gets no answer either.
    let given_up = begun + limit * 12;
    while Instant::now() < given_up {
        let asked = Instant::now();
        assert!(rates.check("key", rarely(3_000), 1).await.unwrap().is_degraded());
        assert!(asked.elapsed() < Duration::from_secs(2), "{:?}", asked.elapsed());
    }
    proxy.thaw();
    eventually("the database decides again", async || is_shared(&rates).await).await;
    assert_eq!(rates.stats().outages, 1);
}
