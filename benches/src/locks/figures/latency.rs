//! One task: an acquire beside the smallest question that one can ask the server.

use std::time::Instant;

use latchwork_core::Key;
use latchwork_postgres::Postgres;

use crate::{
    Failure,
    connection::connect,
    report::{Goal, Report},
    statistics::{nanos, quantile},
};

const TURNS: usize = 4_000;
const WARM_UP: usize = 200;
const KEY: Key = Key::bigint(2_000_000);

pub(crate) async fn measure(url: &str, postgres: &Postgres, report: &mut Report) -> Result<(), Failure> {
    let (url, locks) = (url.to_owned(), postgres.locks());
    // In a task, as all the others are, and not on the thread that only waits.
    let (mut ours, mut select) = tokio::spawn(async move {
        let client = connect(&url).await?;
        let statement = client.prepare("SELECT 1").await?;
        let (mut ours, mut select) = (Vec::with_capacity(TURNS), Vec::with_capacity(TURNS));
        for turn in 0..TURNS + WARM_UP {
            let started = Instant::now();
            let guard = locks.try_acquire(KEY).await?;
            let acquire = started.elapsed();
            // Awaited, so that the release does not run beside the question.
            guard.ok_or("the key was not free")?.release().await?;
            let started = Instant::now();
            let row = client.query_one(&statement, &[]).await?;
            let question = started.elapsed();
            if row.get::<_, i32>(0) == 1 && turn >= WARM_UP {
                ours.push(nanos(acquire));
                select.push(nanos(question));
            }
        }
        Ok::<_, Failure>((ours, select))
    })
    .await??;
    ours.sort_unstable();
    select.sort_unstable();
    let (ours, select) = (quantile(&ours, 0.5) as f64, quantile(&select, 0.5) as f64);
    report.note(format!(
        "one task: acquire {:.1} us, SELECT 1 {:.1} us",
        ours / 1_000.0,
        select / 1_000.0
    ));
    report.figure("latency_vs_select1", ours / select, Goal::AtMost(1.3));
    Ok(())
}
