//! The table and the session that the ledger is kept in.

use std::time::{Duration, Instant};

use latchwork_core::{
    Key,
    once::{LedgerError, OnceError, Outcome, RunEnd, TickAnswer, TickClaim},
};
use latchwork_harness::Cluster;
use latchwork_postgres::schema::install;

use super::{HOUR, SECOND, installed, now};
use crate::onlooker::{Onlooker, SOON, chain, connect, eventually, quick};

#[tokio::test(flavor = "multi_thread")]
async fn without_the_table_a_tick_says_how_to_make_it_and_works_once_it_is_there() {
    let cluster = Cluster::start().unwrap();
    let onlooker = Onlooker::new(&cluster.url()).await;
    let locks = connect(&cluster.url(), quick()).await.locks();
    let job = || locks.once("job").tick(now(), HOUR);
    assert_eq!(
        locks.once("job").run(async { 7 }).await.unwrap(),
        Outcome::Ran(7),
        "a lock needs none"
    );
    for _ in 0..2 {
        let error = job().run(async {}).await.unwrap_err();
        assert!(matches!(error, OnceError::Ledger(LedgerError::Setup(_))), "{error:?}");
        assert!(chain(&error).contains("latchwork schema install"), "{}", chain(&error));
        assert!(!error.is_outage());
    }
    assert!(job().last_run().await.is_err());
    assert_eq!(onlooker.held().await, 0, "the lock is given up");
    install(&onlooker.0).await.unwrap();
    assert_eq!(job().run(async {}).await.unwrap(), Outcome::Ran(()));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_role_that_may_not_use_the_table_is_told_what_it_needs() {
    let (cluster, onlooker) = installed().await;
    onlooker.0.batch_execute("CREATE ROLE shop LOGIN").await.unwrap();
    let locks = connect(&cluster.url_for("shop", "postgres"), quick()).await.locks();
    let job = || locks.once("job").tick(now(), HOUR);
    let error = job().run(async {}).await.unwrap_err();
    assert!(chain(&error).contains("grant it USAGE"), "{}", chain(&error));
    let grants = "GRANT USAGE ON SCHEMA latchwork TO shop; \
         GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA latchwork TO shop";
    onlooker.0.batch_execute(grants).await.unwrap();
    assert_eq!(job().run(async {}).await.unwrap(), Outcome::Ran(()));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_table_that_somebody_has_locked_holds_up_ticks_but_no_locks() {
    let (cluster, onlooker) = installed().await;
    let locks = connect(&cluster.url(), quick()).await.locks();
    let guard = locks.acquire("other").within(SOON).await.unwrap();
    onlooker
        .0
        .batch_execute("BEGIN; LOCK TABLE latchwork.ticks")
        .await
        .unwrap();
    let begun = Instant::now();
    let tick = tokio::spawn(locks.once("job").tick(now(), HOUR).run(async {}));
    while !tick.is_finished() {
        assert!(guard.is_held());
        locks
            .acquire("third")
            .within(SOON)
            .await
            .unwrap()
            .release()
            .await
            .unwrap();
    }
    let error = tick.await.unwrap().unwrap_err();
    assert!(error.is_outage(), "{}", chain(&error));
    assert!(begun.elapsed() < SOON);
    onlooker.0.batch_execute("ROLLBACK").await.unwrap();
    assert!(guard.is_held());
    assert_eq!(
        locks.once("job").tick(now(), HOUR).run(async {}).await.unwrap(),
        Outcome::Ran(())
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_session_that_is_ended_is_replaced() {
    let (cluster, onlooker) = installed().await;
    let locks = connect(&cluster.url(), quick()).await.locks();
    let ticks = "query LIKE '%latchwork.ticks%'";
    for second in 0..3 {
        let tick = now() - HOUR + second * SECOND;
        eventually("it runs", async || {
            matches!(
                locks.once("job").tick(tick, HOUR).run(async {}).await,
                Ok(Outcome::Ran(()))
            )
        })
        .await;
        for pid in onlooker.sessions(ticks).await {
            onlooker.terminate(pid).await;
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_claim_that_is_repeated_is_the_same_and_another_is_not() {
    let (_cluster, onlooker) = installed().await;
    let answer = async |claim: &TickClaim| claim.read(&onlooker.value(&claim.statement()).await).unwrap();
    let claim = |tick| TickClaim::new(Key::pair(1, 2), "it's a \\job\0", tick, HOUR).claimed_by("O'Neill");
    let first = claim(now());
    for _ in 0..3 {
        assert_eq!(answer(&first).await, TickAnswer::Claimed);
        assert_eq!(answer(&claim(now() - SECOND)).await, TickAnswer::Taken);
        assert_eq!(answer(&claim(first.tick())).await, TickAnswer::Taken);
    }
    assert_eq!(answer(&claim(now() + SECOND)).await, TickAnswer::Claimed);
    assert_eq!(answer(&first).await, TickAnswer::Taken);
    let far = answer(&claim(now() + HOUR + SOON)).await;
    assert!(
        matches!(far, TickAnswer::Ahead { by } if by > HOUR && by < HOUR + 2 * SOON),
        "{far:?}"
    );
    let row = "SELECT name || '|' || claimed_by || '|' || outcome FROM latchwork.ticks";
    assert_eq!(onlooker.value(row).await, "it's a \\job\u{fffd}|O'Neill|committed");
    onlooker
        .0
        .batch_execute("SET standard_conforming_strings = off")
        .await
        .unwrap();
    assert_eq!(answer(&claim(now() + 2 * SECOND)).await, TickAnswer::Claimed);
    assert_eq!(onlooker.value(row).await, "it's a \\job\u{fffd}|O'Neill|committed");
}

#[tokio::test(flavor = "multi_thread")]
async fn nobodys_search_path_replaces_what_a_claim_is_made_of() {
    let (_cluster, onlooker) = installed().await;
    let evil = "CREATE SCHEMA evil; \
         CREATE FUNCTION evil.lt(timestamptz, timestamptz) RETURNS bool LANGUAGE sql AS 'SELECT true'; \
         CREATE OPERATOR evil.< (LEFTARG = timestamptz, RIGHTARG = timestamptz, FUNCTION = evil.lt); \
         CREATE FUNCTION evil.same(text, text) RETURNS bool LANGUAGE sql AS 'SELECT false'; \
         CREATE OPERATOR evil.= (LEFTARG = text, RIGHTARG = text, FUNCTION = evil.same); \
         CREATE FUNCTION evil.pg_try_advisory_xact_lock(int8) RETURNS bool LANGUAGE sql AS 'SELECT false'; \
         SET search_path = evil, pg_catalog";
    onlooker.0.batch_execute(evil).await.unwrap();
    let answer = async |claim: &TickClaim| claim.read(&onlooker.value(&claim.statement()).await).unwrap();
    let claim = |tick| TickClaim::new(Key::bigint(1), "job", tick, HOUR);
    assert_eq!(answer(&claim(now())).await, TickAnswer::Claimed);
    assert_eq!(answer(&claim(now() - SECOND)).await, TickAnswer::Taken);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_end_of_a_run_is_not_noted_over_a_later_one() {
    let (cluster, onlooker) = installed().await;
    let locks = connect(&cluster.url(), quick()).await.locks();
    let later = locks.once("job").tick(now() + SECOND, HOUR).claim().unwrap().unwrap();
    let run = locks.once("job").tick(now(), HOUR).run(async {
        // Its lock does not keep a transaction from claiming the next tick.
        assert_eq!(onlooker.value(&later.statement()).await, "claimed");
    });
    assert_eq!(run.await.unwrap(), Outcome::Ran(()));
    let last = locks.once("job").last_run().await.unwrap().unwrap();
    assert_eq!((last.tick, last.end), (later.tick(), Some(RunEnd::Committed)));
    assert_eq!(last.took(), None);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_run_that_is_dropped_says_so_in_the_ledger() {
    let (cluster, onlooker) = installed().await;
    let locks = connect(&cluster.url(), quick()).await.locks();
    let run = locks.once("job").tick(now(), HOUR).run(std::future::pending::<()>());
    assert!(tokio::time::timeout(Duration::from_millis(500), run).await.is_err());
    eventually("it is noted", async || {
        let last = locks.once("job").last_run().await.unwrap();
        last.is_some_and(|last| last.end == Some(RunEnd::Dropped))
    })
    .await;
    eventually("nothing is held", async || onlooker.held().await == 0).await;
}
