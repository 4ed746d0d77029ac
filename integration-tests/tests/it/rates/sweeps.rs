//! What is left behind goes, a few rows at a time, and nothing else does.

use std::time::Duration;

use latchwork_core::rate::Quota;
use latchwork_harness::Proxy;
use latchwork_postgres::RateOptions;

use super::{age, assert_shared, installed, patient, process, rarely, rows};
use crate::onlooker::{Onlooker, SOON, connect, eventually, loud, quick, within};

fn sweeping() -> RateOptions {
    patient().with_sweep_interval(Duration::from_millis(50))
}

/// Rows that ceased to matter more than a minute ago, but for one that has `tat4` in an hour.
async fn leave_behind(onlooker: &Onlooker, rows: u32) {
    let insert = format!(
        "INSERT INTO latchwork.rate_limits (key, quotas, admitted, tat1, tat2, tat3, tat4) \
         SELECT i * 900719925474099, i * 2, 1, now - 61000000000, CASE WHEN i % 2 = 0 THEN now - 62000000000 END, NULL, \
         CASE WHEN i = 7 THEN now + 3600000000000 END FROM generate_series(1, {rows}::int8) AS i, \
         (SELECT (date_part('epoch', clock_timestamp()) * 1e9)::int8 AS now) AS clock"
    );
    onlooker.0.batch_execute(&insert).await.unwrap();
}

/// Rows that no sweep may take: not the turn's own.
async fn kept(onlooker: &Onlooker) -> i64 {
    let sql = "SELECT count(*) FROM latchwork.rate_limits \
         WHERE tat1 - 1000000000 > (date_part('epoch', clock_timestamp()) * 1e9)::int8 OR tat4 IS NOT NULL";
    onlooker.number(sql).await
}

#[tokio::test(flavor = "multi_thread")]
async fn rows_that_no_longer_matter_go_and_others_stay() {
    let (cluster, onlooker) = installed().await;
    leave_behind(&onlooker, 5_000).await;
    let processes = [process(&cluster, sweeping()).await, process(&cluster, sweeping()).await];
    for number in 0..100 {
        let decision = processes[number % 2]
            .check(("key", number), rarely(5), 2)
            .await
            .unwrap();
        assert!(decision.is_allowed());
    }
    // The turn's own row comes and goes.
    eventually("they are gone", async || rows(&onlooker).await <= 102).await;
    assert_eq!(kept(&onlooker).await, 101);
    for number in 0..100 {
        let decision = processes[number % 2]
            .check(("key", number), rarely(5), 0)
            .await
            .unwrap();
        assert_eq!(decision.remaining(), 3);
    }
    assert_eq!(loud(&cluster), Vec::<String>::new());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_sweep_takes_nothing_from_keys_that_are_charged_meanwhile() {
    let (cluster, onlooker) = installed().await;
    let processes = [process(&cluster, sweeping()).await, process(&cluster, sweeping()).await];
    // So short that rows cease to matter all the time, and so steep that a row that is lost lets too much in.
    let quota = Quota::new(1, Duration::from_millis(20)).unwrap();
    let begun = std::time::Instant::now();
    let mut allowed = [0_u32; 50];
    while begun.elapsed() < Duration::from_secs(2) {
        let checks = (0..50).map(|key| processes[key % 2].check(("key", key), quota, 1));
        for (key, decision) in futures_util::future::join_all(checks).await.into_iter().enumerate() {
            let decision = decision.unwrap();
            assert_shared(&decision);
            allowed[key] += u32::from(decision.is_allowed());
        }
        if begun.elapsed().as_millis() % 200 < 20 {
            leave_behind_again(&onlooker).await;
        }
        age(&onlooker).await;
    }
    let most = 1 + u32::try_from(begun.elapsed().as_millis() / 20).unwrap();
    assert!(
        allowed.iter().all(|allowed| *allowed <= most),
        "{allowed:?} of at most {most}"
    );
    let deadlocks = "SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()";
    assert_eq!(onlooker.number(deadlocks).await, 0);
    eventually("all are gone", async || {
        age(&onlooker).await;
        rows(&onlooker).await <= 2
    })
    .await;
    assert_eq!(loud(&cluster), Vec::<String>::new());
}

async fn leave_behind_again(onlooker: &Onlooker) {
    let clear =
        "DELETE FROM latchwork.rate_limits WHERE quotas BETWEEN 2 AND 2000 AND key = quotas / 2 * 900719925474099";
    onlooker.0.batch_execute(clear).await.unwrap();
    leave_behind(onlooker, 1_000).await;
    let clear = "DELETE FROM latchwork.rate_limits WHERE tat4 IS NOT NULL";
    onlooker.0.batch_execute(clear).await.unwrap();
}

/// A statement that was held up for so long would make the row anew by the clock that it has read before.
#[tokio::test(flavor = "multi_thread")]
async fn a_row_that_has_ceased_to_matter_within_a_minute_stays() {
    let (cluster, onlooker) = installed().await;
    leave_behind(&onlooker, 20).await;
    let lately = "UPDATE latchwork.rate_limits SET tat1 = tat1 + 31000000000 WHERE quotas <= 6";
    onlooker.0.batch_execute(lately).await.unwrap();
    let rates = process(&cluster, sweeping()).await;
    let old = "SELECT count(*) FROM latchwork.rate_limits WHERE tat4 IS NULL AND quotas BETWEEN 8 AND 40";
    eventually("the old ones are gone", async || onlooker.number(old).await == 0).await;
    let late = "SELECT count(*) FROM latchwork.rate_limits WHERE quotas BETWEEN 2 AND 6";
    assert_eq!(onlooker.number(late).await, 3);
    rates.close().await;
}

/// Its reading of the clock would grow old, and move arrival times back.
#[tokio::test(flavor = "multi_thread")]
async fn a_charge_that_is_held_up_is_ended_by_the_server_though_nobody_waits_for_it() {
    let (cluster, onlooker) = installed().await;
    let proxy = Proxy::start(cluster.endpoint()).unwrap();
    let rates = connect(&proxy.url(), quick()).await.rate_limits(RateOptions::default());
    eventually("the database decides", async || {
        rates
            .check("key", rarely(5), 1)
            .await
            .is_ok_and(|decision| !decision.is_degraded())
    })
    .await;
    let holder = Onlooker::new(&cluster.url()).await;
    let hold = "BEGIN; SELECT 1 FROM latchwork.rate_limits FOR UPDATE";
    holder.0.batch_execute(hold).await.unwrap();
    let waits = "EXISTS (SELECT FROM pg_locks WHERE NOT granted)";
    let asks = tokio::spawn(rates.check("key", rarely(5), 1));
    eventually("it is held up", async || onlooker.is(waits).await).await;
    proxy.freeze();
    assert!(asks.await.unwrap().unwrap().is_degraded());
    within(SOON * 3, "it is ended", async || !onlooker.is(waits).await).await;
    holder.0.batch_execute("COMMIT").await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn of_many_processes_one_has_the_turn_in_each_interval() {
    let (cluster, onlooker) = installed().await;
    let often = patient().with_sweep_interval(Duration::from_millis(200));
    let mut processes = Vec::new();
    for _ in 0..5 {
        processes.push(process(&cluster, often.clone()).await);
    }
    // Each sweep deletes once, if only nothing.
    let begun = std::time::Instant::now();
    let note = "CREATE TABLE public.swept (at timestamptz); \
         CREATE FUNCTION public.note() RETURNS trigger LANGUAGE plpgsql AS \
         $$ BEGIN INSERT INTO public.swept VALUES (clock_timestamp()); RETURN NULL; END $$; \
         CREATE TRIGGER note AFTER DELETE ON latchwork.rate_limits FOR EACH STATEMENT EXECUTE FUNCTION public.note()";
    onlooker.0.batch_execute(note).await.unwrap();
    eventually("five sweeps", async || {
        onlooker.number("SELECT count(*) FROM swept").await >= 5
    })
    .await;
    let (sweeps, elapsed) = (onlooker.number("SELECT count(*) FROM swept").await, begun.elapsed());
    let most = 1 + elapsed.as_millis() / 200;
    assert!(u128::try_from(sweeps).unwrap() <= most, "{sweeps} in {elapsed:?}");
    drop(processes);
}
