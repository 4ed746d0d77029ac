//! What is done once for each tick: a report, by whichever worker comes first.

use std::{num::NonZeroU32, time::SystemTime};

use latchwork::{
    Locks,
    leader::CancellationToken,
    once::{Job, Missed, Schedule, Scheduler},
    postgres::deadpool_postgres::Pool,
};

/// Runs the schedule, until it is told to stop.
pub(crate) async fn each_second(
    locks: &Locks,
    pool: &Pool,
    name: &str,
    stop: &CancellationToken,
) -> anyhow::Result<()> {
    // Six fields: the first is seconds.
    let each_second = Schedule::cron("* * * * * *", "UTC")?;
    let (pool, name) = (pool.clone(), name.to_owned());
    let reports = Job::new("report", &each_second, move |tick| {
        report(tick, pool.clone(), name.clone())
    });
    // A second for which all were too busy is made up for.
    let reports = reports.with_missed(Missed::RunAll { at_most: A_MINUTE });
    let scheduler = Scheduler::new(locks).with_job(reports)?;
    // Waits for a report that is being written.
    scheduler.run_until(stop.cancelled()).await;
    Ok(())
}

async fn report(tick: SystemTime, pool: Pool, name: String) -> anyhow::Result<()> {
    pool.get().await?.execute(REPORT, &[&tick, &name]).await?;
    Ok(())
}

// That a tick is run once is the scheduler's to see to; the count tells if it did not.
const REPORT: &str = "\
    INSERT INTO reports AS r (tick, made_by, shipped) SELECT $1, $2, count(shipped_by) FROM orders \
    ON CONFLICT (tick) DO UPDATE SET times_made = r.times_made + 1";
const A_MINUTE: NonZeroU32 = NonZeroU32::new(60).expect("not zero");
