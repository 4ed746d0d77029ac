//! How fast acquires and releases go over a path.

use std::time::Duration;

use latchwork_core::{AcquireError, Key, Locks};
use latchwork_postgres::Postgres;
use tokio::{task::JoinSet, time::Instant};

/// What was measured.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Measured {
    pub(crate) tasks: u32,
    pub(crate) cycles_per_second: f64,
    /// How long a task waited for a lock that was free.
    pub(crate) median: Duration,
    pub(crate) p99: Duration,
}

/// Has tasks take a free lock each, give it up and take it again, for so long.
pub(crate) async fn measure(postgres: &Postgres, tasks: u32, time: Duration) -> Result<Measured, AcquireError> {
    let (locks, number) = (postgres.locks(), postgres.identity().number());
    let began = Instant::now();
    let until = began + time;
    let mut running = JoinSet::new();
    for task in 0..tasks {
        // Nobody else's: two runs at once must not measure each other.
        let key = Key::bigint(i64::from(number) << 32).derive("bench", task);
        running.spawn(cycle(locks.clone(), key, until));
    }
    let mut waits = Vec::new();
    while let Some(ended) = running.join_next().await {
        // A task ends with its answer, since none of it panics.
        waits.extend(ended.unwrap_or_else(|_| Ok(Vec::new()))?);
    }
    let took = began.elapsed();
    let cycles = waits.len();
    waits.sort_unstable();
    let at = |share: usize| waits.get(cycles * share / 100).copied().unwrap_or_default();
    Ok(Measured {
        tasks,
        cycles_per_second: cycles as f64 / took.as_secs_f64(),
        median: at(50),
        p99: at(99),
    })
}

async fn cycle(locks: Locks, key: Key, until: Instant) -> Result<Vec<Duration>, AcquireError> {
    let mut waits = Vec::new();
    loop {
        let began = Instant::now();
        if began >= until {
            return Ok(waits);
        }
        // Its guard is dropped at once, which releases without waiting, as services do.
        let granted = locks.try_acquire(key).await?.is_some();
        if granted {
            waits.push(began.elapsed());
        }
    }
}
