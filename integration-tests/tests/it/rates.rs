//! Rate limits on a database: exact whoever asks, bounded whatever happens, and nothing left behind.

mod charges;
mod outages;
mod schema;
mod sweeps;

use latchwork_core::rate::{Quota, RateDecision, RateLimits};
use latchwork_harness::Cluster;
use latchwork_postgres::{RateOptions, schema::install};

use crate::onlooker::{Onlooker, SOON, connect, quick};

/// A cluster with the tables.
async fn installed() -> (Cluster, Onlooker) {
    let cluster = Cluster::start().unwrap();
    let onlooker = Onlooker::new(&cluster.url()).await;
    install(&onlooker.0).await.unwrap();
    (cluster, onlooker)
}

/// The rate limits of one process.
async fn process(cluster: &Cluster, options: RateOptions) -> RateLimits {
    connect(&cluster.url(), quick()).await.rate_limits(options)
}

/// The machine may be busy: a slow answer is an answer.
fn patient() -> RateOptions {
    RateOptions::default().with_answer_within(SOON)
}

/// Charges a key `times` at once, and says how many charges were allowed.
async fn charge_at_once(rates: &RateLimits, key: &str, quota: Quota, times: usize) -> usize {
    let checks = (0..times).map(|_| tokio::spawn(rates.check(key, quota, 1)));
    let checks: Vec<_> = checks.collect();
    let mut allowed = 0;
    for check in checks {
        allowed += usize::from(check.await.unwrap().unwrap().is_allowed());
    }
    allowed
}

/// So rare that nothing comes back during a test.
fn rarely(burst: u32) -> Quota {
    Quota::per_day(1).unwrap().with_burst(burst).unwrap()
}

async fn rows(onlooker: &Onlooker) -> i64 {
    onlooker.number("SELECT count(*) FROM latchwork.rate_limits").await
}

/// As if more than a minute had passed for the rows that matter no longer. Waits for no row, so that it is part of no
/// deadlock.
async fn age(onlooker: &Onlooker) {
    let age = "UPDATE latchwork.rate_limits SET tat1 = tat1 - 62000000000, tat2 = tat2 - 62000000000 \
         WHERE ctid = ANY (ARRAY(SELECT ctid FROM latchwork.rate_limits \
         WHERE GREATEST(tat1, tat2, tat3, tat4) < (date_part('epoch', clock_timestamp()) * 1e9)::int8 \
         FOR UPDATE SKIP LOCKED))";
    onlooker.0.batch_execute(age).await.unwrap();
}

#[track_caller]
fn assert_shared(decision: &RateDecision) {
    assert!(!decision.is_degraded(), "{decision:?}");
}
