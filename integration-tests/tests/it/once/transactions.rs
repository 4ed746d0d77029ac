//! Ticks that are claimed in the work's own transaction.

use std::{
    process::Command,
    time::{Duration, Instant, SystemTime},
};

use latchwork_core::{
    Key,
    once::{Outcome, Skipped, TickAnswer, TickClaim},
};
use latchwork_harness::{Cluster, Process, Signal};
use latchwork_postgres::{StatementError, transaction::TickExt as _};
use tokio_postgres::IsolationLevel;

use super::{HOUR, SECOND, installed, installed_on_major, now};
use crate::onlooker::{Onlooker, connect, eventually, majors, quick};

fn ticker(cluster: &Cluster, tick: SystemTime, end: &str) -> Process {
    let tick = tick
        .duration_since(SystemTime::UNIX_EPOCH)
        .unwrap()
        .as_secs()
        .to_string();
    let mut command = Command::new(env!("CARGO_BIN_EXE_ticker"));
    Process::spawn(command.args([&cluster.url(), &tick, end])).unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn on_every_major_a_process_that_is_killed_before_commit_leaves_the_tick_to_the_next() {
    for installation in majors() {
        let (cluster, onlooker) = installed_on_major(installation).await;
        onlooker
            .0
            .batch_execute("CREATE TABLE bills (tick timestamptz)")
            .await
            .unwrap();
        let tick = now();
        let mut killed = ticker(&cluster, tick, "hang");
        assert!(killed.wait_for_line("answered ").unwrap().contains("Claimed"));
        killed.wait_for_line("billed").unwrap();
        let mut rival = ticker(&cluster, tick, "hang");
        assert!(rival.wait_for_line("answered ").unwrap().contains("Busy"));
        rival.signal(Signal::KILL);
        killed.signal(Signal::KILL);
        killed.wait().unwrap();
        rival.wait().unwrap();
        eventually("its transaction is gone", async || onlooker.held().await == 0).await;
        assert_eq!(onlooker.number("SELECT count(*) FROM bills").await, 0);
        let mut next = ticker(&cluster, tick, "commit");
        assert!(next.wait_for_line("answered ").unwrap().contains("Claimed"));
        next.wait_for_line("committed").unwrap();
        next.wait().unwrap();
        assert_eq!(onlooker.number("SELECT count(*) FROM bills").await, 1);
        let mut late = ticker(&cluster, tick, "hang");
        assert!(late.wait_for_line("answered ").unwrap().contains("Taken"));
        late.signal(Signal::KILL);
        late.wait().unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_rival_does_not_wait_for_the_row() {
    let (cluster, onlooker) = installed().await;
    let locks = connect(&cluster.url(), quick()).await.locks();
    let claim = locks.once("job").tick(now(), HOUR).claim().unwrap().unwrap();
    let mut client = Onlooker::new(&cluster.url()).await.0;
    let transaction = client.transaction().await.unwrap();
    assert_eq!(transaction.claim_tick(&claim).await.unwrap(), TickAnswer::Claimed);
    for second in 0..3 {
        let begun = Instant::now();
        let rival = locks.once("job").tick(now() + second * SECOND, HOUR).run(async {});
        assert_eq!(rival.await.unwrap(), Outcome::Skipped(Skipped::Held));
        // Had it waited, the server would have ended it after half a second, with an error.
        assert!(begun.elapsed() < Duration::from_secs(5), "{:?}", begun.elapsed());
        let waits = "SELECT count(*) FROM pg_locks WHERE NOT granted";
        assert_eq!(onlooker.number(waits).await, 0);
    }
    transaction.commit().await.unwrap();
    let rival = locks.once("job").tick(claim.tick(), HOUR).run(async {});
    assert_eq!(rival.await.unwrap(), Outcome::Skipped(Skipped::Claimed));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_claim_goes_with_its_savepoint() {
    let (cluster, _onlooker) = installed().await;
    let claim = TickClaim::new(Key::bigint(1), "job", now(), HOUR);
    let other = TickClaim::new(Key::bigint(1), "job", now(), HOUR);
    let mut client = Onlooker::new(&cluster.url()).await.0;
    let mut rival = Onlooker::new(&cluster.url()).await.0;
    let mut transaction = client.transaction().await.unwrap();
    let savepoint = transaction.transaction().await.unwrap();
    assert_eq!(savepoint.claim_tick(&claim).await.unwrap(), TickAnswer::Claimed);
    savepoint.rollback().await.unwrap();
    let rivals = rival.transaction().await.unwrap();
    assert_eq!(rivals.claim_tick(&other).await.unwrap(), TickAnswer::Claimed);
    assert_eq!(transaction.claim_tick(&claim).await.unwrap(), TickAnswer::Busy);
    rivals.commit().await.unwrap();
    assert_eq!(transaction.claim_tick(&claim).await.unwrap(), TickAnswer::Taken);
}

/// A snapshot that is older than another's claim ends in an error, not in a second run.
#[tokio::test(flavor = "multi_thread")]
async fn an_old_snapshot_claims_nothing_twice() {
    let (cluster, onlooker) = installed().await;
    for isolation in [IsolationLevel::RepeatableRead, IsolationLevel::Serializable] {
        let key = Key::bigint(isolation as i64);
        let claim = |tick| TickClaim::new(key, "job", tick, HOUR);
        onlooker.value(&claim(now() - SECOND).statement()).await;
        let mut client = Onlooker::new(&cluster.url()).await.0;
        let transaction = client
            .build_transaction()
            .isolation_level(isolation)
            .start()
            .await
            .unwrap();
        transaction
            .query_one("SELECT count(*) FROM latchwork.ticks", &[])
            .await
            .unwrap();
        assert_eq!(onlooker.value(&claim(now()).statement()).await, "claimed");
        let late = transaction.claim_tick(&claim(now())).await;
        assert!(matches!(late, Err(StatementError::Server { .. })), "{late:?}");
    }
}
