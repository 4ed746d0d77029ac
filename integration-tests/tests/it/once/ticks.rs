//! Several nodes on one database.

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::{Duration, Instant, SystemTime},
};

use latchwork_core::{
    Locks, WallClock,
    once::{OnceError, Outcome, RunEnd, Schedule, Skipped},
};
use latchwork_postgres::PostgresOptions;
use tokio::time::sleep;

use super::{HOUR, SECOND, STORE_RUN, installed, installed_on_major, now};
use crate::onlooker::{Onlooker, SOON, assert_quiet, connect, eventually, majors, quick};

async fn run_tick(locks: &Locks, tick: SystemTime) -> Outcome<()> {
    locks.once("job").tick(tick, HOUR).run(async {}).await.unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn on_every_major_a_tick_is_run_once_and_told_of() {
    for installation in majors() {
        let (cluster, onlooker) = installed_on_major(installation).await;
        let options = quick().with_application_name("biller");
        let (one, other) = (
            connect(&cluster.url(), options).await,
            connect(&cluster.url(), quick()).await,
        );
        let (first, second) = (now() - SECOND, now());
        let (locks, rival) = (one.locks(), other.locks());
        assert_eq!(locks.once("job").last_run().await.unwrap(), None);
        assert_eq!(run_tick(&locks, first).await, Outcome::Ran(()));
        let claimed = Outcome::Skipped(Skipped::Claimed);
        assert_eq!(run_tick(&rival, first).await, claimed);
        assert_eq!(run_tick(&locks, first).await, claimed);
        let last = rival.once("job").last_run().await.unwrap().unwrap();
        assert_eq!((last.name.as_str(), last.tick), ("job", first));
        assert_eq!(last.claimed_by, one.identity().to_string());
        assert!(last.claimed_by.starts_with("biller#"), "{last:?}");
        assert_eq!(last.end, Some(RunEnd::Done));
        assert!(last.took().unwrap() < SOON, "{last:?}");
        assert_eq!(run_tick(&rival, second).await, Outcome::Ran(()));
        assert_eq!(run_tick(&locks, first).await, claimed);
        let slow = locks.once("job").tick(second + SECOND, HOUR).with_max_run(SECOND / 100);
        let error = slow.run(sleep(SOON)).await.unwrap_err();
        assert!(matches!(error, OnceError::Overran { .. }), "{error}");
        let last = locks.once("job").last_run().await.unwrap().unwrap();
        assert_eq!((last.tick, last.end), (second + SECOND, Some(RunEnd::Overran)));
        assert_eq!(onlooker.number("SELECT count(*) FROM latchwork.ticks").await, 1);
        one.locks().close().await;
        other.locks().close().await;
        eventually("all sessions have ended", async || {
            onlooker.sessions("true").await.is_empty()
        })
        .await;
        assert_quiet(&cluster);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn two_nodes_with_skewed_clocks_run_each_tick_once_between_them() {
    let (cluster, onlooker) = installed().await;
    let interval = Duration::from_millis(300);
    let schedule = Schedule::every(interval).unwrap();
    let ran = Arc::new(AtomicUsize::new(0));
    // One that is ahead by half an interval, and two that come when others have long run.
    let ahead = WallClock::from_fn(move || SystemTime::now() + interval / 2);
    let behind = WallClock::from_fn(move || SystemTime::now() - interval * 2);
    let nodes = [ahead, WallClock::system(), behind].map(|clock| {
        let (url, schedule, ran) = (cluster.url(), schedule.clone(), Arc::clone(&ran));
        tokio::spawn(async move {
            let locks = connect(&url, quick()).await.locks();
            let store = Onlooker::new(&url).await;
            let begun = Instant::now();
            while begun.elapsed() < 4 * SECOND {
                let job = locks.once("job").on(&schedule).with_clock(clock.clone());
                // A tick that is run twice fails here.
                let outcome = job.run(async { store.0.execute(STORE_RUN, &[]).await.unwrap() }).await;
                match outcome {
                    Ok(Outcome::Ran(stored)) => drop(ran.fetch_add(stored as usize, Ordering::Relaxed)),
                    Ok(Outcome::Skipped(_)) => {}
                    Err(error) => panic!("{error}"),
                }
                sleep(Duration::from_millis(20)).await;
            }
        })
    });
    for node in nodes {
        node.await.unwrap();
    }
    let stored = onlooker.number("SELECT count(*) FROM runs").await;
    assert_eq!(ran.load(Ordering::Relaxed), usize::try_from(stored).unwrap());
    assert!(stored > 5, "{stored} ticks in four seconds");
    let off = "SELECT count(*) FROM runs WHERE (extract(epoch FROM tick) * 1000)::int8 % 300 <> 0";
    assert_eq!(onlooker.number(off).await, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn many_who_come_at_once_run_each_tick_once() {
    let (cluster, onlooker) = installed().await;
    let base = now() - HOUR;
    let nodes = [0; 4].map(|_| {
        let url = cluster.url();
        tokio::spawn(async move {
            // They ask without a pause, which a machine that does much else may not answer within quick limits.
            let locks = connect(&url, PostgresOptions::default()).await.locks();
            let store = Onlooker::new(&url).await;
            for tick in 0..60 {
                // Everybody tries until the tick is claimed, by whomever.
                loop {
                    let job = locks.once("job").tick(base + tick * SECOND, HOUR);
                    let run = job.run(async { store.0.execute(STORE_RUN, &[]).await.unwrap() });
                    match run.await.unwrap() {
                        Outcome::Skipped(Skipped::Held) => {}
                        _ => break,
                    }
                }
            }
        })
    });
    for node in nodes {
        node.await.unwrap();
    }
    assert_eq!(onlooker.number("SELECT count(*) FROM runs").await, 60);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_job_that_is_done_at_once_is_not_run_twice_by_who_comes_a_moment_later() {
    let (cluster, _onlooker) = installed().await;
    let (one, other) = (
        connect(&cluster.url(), quick()).await.locks(),
        connect(&cluster.url(), quick()).await.locks(),
    );
    let quick_job = || sleep(Duration::from_millis(1));
    let hold = |locks: &Locks| locks.once("held").with_hold_at_least(SECOND);
    assert!(!hold(&one).run(quick_job()).await.unwrap().is_skipped());
    sleep(SECOND / 5).await;
    assert_eq!(
        hold(&other).run(quick_job()).await.unwrap(),
        Outcome::Skipped(Skipped::Held)
    );
    eventually("it may run again", async || {
        !hold(&other).run(quick_job()).await.unwrap().is_skipped()
    })
    .await;
    let tick = now();
    assert_eq!(run_tick(&one, tick).await, Outcome::Ran(()));
    sleep(SECOND / 5).await;
    assert_eq!(run_tick(&other, tick).await, Outcome::Skipped(Skipped::Claimed));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_tick_in_2030_is_refused_and_stops_nobody() {
    let (cluster, onlooker) = installed().await;
    let locks = connect(&cluster.url(), quick()).await.locks();
    let ahead = 7 * 365 * 24 * HOUR;
    let wrong = WallClock::from_fn(move || SystemTime::now() + ahead);
    let schedule = Schedule::every(SECOND).unwrap();
    let error = locks
        .once("job")
        .on(&schedule)
        .with_clock(wrong)
        .run(async {})
        .await
        .unwrap_err();
    let OnceError::Ahead { by, allowed, .. } = error else {
        panic!("{error}");
    };
    assert_eq!(allowed, SECOND);
    assert!(by <= ahead && by > ahead - HOUR, "{by:?}");
    assert_eq!(onlooker.number("SELECT count(*) FROM latchwork.ticks").await, 0);
    assert_eq!(run_tick(&locks, now()).await, Outcome::Ran(()));
    assert_eq!(onlooker.held().await, 0);
}
