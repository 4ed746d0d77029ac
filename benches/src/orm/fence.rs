//! What a fence costs: a transaction that proves it, and a grant that has one.

use std::time::{Duration, Instant};

use deadpool_postgres::{Manager, Pool};
use latchwork_core::{Key, fence::Fence, xact::FencedLimits};
use latchwork_postgres::{
    Postgres, PostgresOptions,
    transaction::{LockedTransactionExt as _, PooledTx},
};
use serde_json::json;
use tokio_postgres::{Error, NoTls};

use super::library::patient;
use crate::{
    Failure,
    connection::connect,
    report::Report,
    statistics::{nanos, quantile},
};

/// How many locks are held in the server beside our own.
const HELD: [usize; 3] = [0, 1_000, 5_000];
const TURNS: usize = 1_000;
const GRANTS: usize = 200;
const WARM_UP: usize = 50;
const KEY: Key = Key::bigint(3_000_000);
const OTHER_KEY: Key = Key::bigint(3_000_001);
const LIMIT: Duration = Duration::from_secs(60);

pub(super) async fn measure(url: &str, report: &mut Report) -> Result<(), Failure> {
    let (asked, postgres) = (
        url.to_owned(),
        Postgres::connect(url.parse()?, PostgresOptions::default()).await?,
    );
    let locks = postgres.locks();
    // In a task, as all the others are, and not on the thread that only waits.
    let measured = tokio::spawn(async move {
        let guard = locks.acquire_fenced(KEY).within(LIMIT).await?;
        let mut checks = Vec::new();
        for held in HELD {
            checks.push((held, checks_beside(&asked, &guard.fence(), held).await?));
        }
        guard.release().await?;
        let mut grants = Vec::with_capacity(GRANTS);
        for _ in 0..GRANTS {
            let started = Instant::now();
            let guard = locks.acquire_fenced(KEY).within(LIMIT).await?;
            grants.push(nanos(started.elapsed()));
            guard.release().await?;
        }
        Ok::<_, Failure>((checks, grants))
    });
    let (checks, mut grants) = measured.await??;
    postgres.locks().close().await;
    for (held, (fenced, locked)) in checks {
        report.note(format!(
            "one task, {held:>5} other locks held: a fenced transaction takes {fenced:.3} ms, a locked one {locked:.3} ms"
        ));
        report.row(json!({ "held": held, "fenced_ms": fenced, "locked_ms": locked, "check_ms": fenced - locked }));
        if held == 0 {
            report.stated("fence.check_ms", fenced - locked);
        }
    }
    grants.sort_unstable();
    report.stated("fence.grant_ms", millis(&grants));
    Ok(())
}

/// How long a fenced and a locked transaction take while so many locks are held, in ms.
async fn checks_beside(url: &str, fence: &Fence, held: usize) -> Result<(f64, f64), Failure> {
    let holder = connect(url).await?;
    let hold = format!("SELECT count(pg_advisory_lock(n)) FROM generate_series(1, {held}) AS n");
    holder.batch_execute(&hold).await?;
    let pool = Pool::builder(Manager::new(url.parse()?, NoTls)).max_size(1).build()?;
    let (mut fenced, mut locked) = (Vec::with_capacity(TURNS), Vec::with_capacity(TURNS));
    for turn in 0..TURNS + WARM_UP {
        let started = Instant::now();
        pool.fenced_transaction(fence, FencedLimits::default(), LIMIT, question)
            .await?;
        let with_fence = started.elapsed();
        let started = Instant::now();
        pool.locked_transaction(OTHER_KEY, patient(), question).await?;
        let without = started.elapsed();
        if turn >= WARM_UP {
            fenced.push(nanos(with_fence));
            locked.push(nanos(without));
        }
    }
    holder.batch_execute("SELECT pg_advisory_unlock_all()").await?;
    fenced.sort_unstable();
    locked.sort_unstable();
    Ok((millis(&fenced), millis(&locked)))
}

async fn question(transaction: &PooledTx) -> Result<(), Error> {
    transaction.batch_execute("SELECT 1").await
}

fn millis(sorted: &[u64]) -> f64 {
    quantile(sorted, 0.5) as f64 / 1_000_000.0
}
