//! What a rate limit's key costs: in the database, and in the process.

use super::services::{Context, quota};
use crate::{Failure, memory::resident, report::Report};

/// How many keys are charged.
const COUNT: usize = 50_000;

pub(super) async fn measure(context: &Context, report: &mut Report) -> Result<(), Failure> {
    let (before, resident_before) = (size(context).await?, resident()?);
    let quota = quota()?;
    for part in 0..COUNT / 500 {
        let checks = (0..500).map(|at| context.rates.check(("row", (part * 500 + at) as u64), quota, 1));
        let checks: Vec<_> = checks.map(tokio::spawn).collect();
        for check in checks {
            if !check.await??.is_allowed() {
                return Err("the first charge of a key was denied".into());
            }
        }
    }
    let count = COUNT as f64;
    let (grown, resident) = (
        size(context).await? - before,
        resident()?.saturating_sub(resident_before),
    );
    report.note(format!(
        "{COUNT} keys charged once: {:.0} bytes each in the database with its index, {:.0} bytes each in the process",
        grown as f64 / count,
        resident as f64 / count
    ));
    report.fact("rate_bytes_per_key_in_database", grown as f64 / count);
    report.fact("rate_bytes_per_key_in_process", resident as f64 / count);
    Ok(())
}

async fn size(context: &Context) -> Result<i64, Failure> {
    let size = "SELECT pg_total_relation_size('latchwork.rate_limits')";
    Ok(context.client.query_one(size, &[]).await?.get(0))
}
