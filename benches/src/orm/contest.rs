//! The three ways of one library against each other: short turns by rounds, so that what disturbs the machine disturbs
//! all alike.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

use serde_json::json;
use tokio::{
    task::JoinSet,
    time::{sleep, timeout},
};

use super::{
    TASKS,
    job::{Job, Lock},
    library::Library,
    stock::Stock,
};
use crate::{
    Failure,
    arguments::Arguments,
    report::{Goal, Report},
    statistics::median,
};

/// Which rows the tasks work on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Keys {
    /// Each task on a row of its own.
    Distinct,
    /// All on one.
    Single,
}

/// Transactions per second of each way in one round, in the order of [`Lock::ALL`].
type Round = [f64; 3];

pub(crate) fn tell_columns() {
    println!(
        "\n{:<14}{:<10}{:>16}{:>16}{:>16}{:>18}{:>16}",
        "library", "keys", "no lock/s", "FOR UPDATE/s", "ours/s", "ours/FOR UPDATE", "ours/no lock"
    );
}

pub(crate) async fn hold<L: Library>(url: &str, arguments: &Arguments, report: &mut Report) -> Result<(), Failure> {
    let library = Arc::new(L::connect(url, TASKS).await?);
    let stock = Stock::connect(url).await?;
    for keys in [Keys::Distinct, Keys::Single] {
        let mut rounds = Vec::new();
        // The first is not counted: statements are prepared in it, and connections opened.
        for number in 0..=arguments.rounds {
            eprintln!(
                "       {}, {}, round {number} of {}",
                L::NAME,
                keys.name(),
                arguments.rounds
            );
            let round = round(&library, &stock, keys, arguments.length).await;
            let round = round.map_err(|failure| format!("{}: {failure}", L::NAME))?;
            if number > 0 {
                rounds.push(round);
            }
        }
        tell::<L>(keys, &rounds, report);
    }
    Ok(())
}

async fn round<L: Library>(library: &Arc<L>, stock: &Stock, keys: Keys, length: Duration) -> Result<Round, Failure> {
    let mut speeds = Round::default();
    for (lock, speed) in Lock::ALL.into_iter().zip(&mut speeds) {
        let before = stock.taken().await?;
        let started = Instant::now();
        let done = timeout(length + PATIENCE, turn(library, lock, keys, length)).await??;
        *speed = done as f64 / started.elapsed().as_secs_f64();
        let taken = stock.taken().await? - before;
        if lock != Lock::None && taken.try_into() != Ok(done) {
            return Err(format!("{}: {done} transactions have taken {taken}", lock.name()).into());
        }
    }
    Ok(speeds)
}

async fn turn<L: Library>(library: &Arc<L>, lock: Lock, keys: Keys, length: Duration) -> Result<u64, Failure> {
    let stop = Arc::new(AtomicBool::new(false));
    let mut running = JoinSet::new();
    for task in 1..=i64::from(TASKS) {
        let row = if keys == Keys::Single { 1 } else { task };
        running.spawn(Arc::clone(library).work(Job::new(lock, row), Arc::clone(&stop)));
    }
    sleep(length).await;
    stop.store(true, Ordering::Relaxed);
    let mut done = 0;
    while let Some(ended) = running.join_next().await {
        done += ended??;
    }
    Ok(done)
}

impl Keys {
    const fn name(self) -> &'static str {
        match self {
            Self::Distinct => "distinct",
            Self::Single => "single",
        }
    }
}

fn tell<L: Library>(keys: Keys, rounds: &[Round], report: &mut Report) {
    let over = |what: &dyn Fn(&Round) -> f64| median(rounds.iter().map(what).collect());
    let [none, for_update, ours] = [0, 1, 2].map(|at| over(&|round| round[at]));
    // Within a round, so that it does not matter if the machine was slower in one than in another.
    let vs_for_update = over(&|[_, for_update, ours]| ours / for_update);
    let vs_none = over(&|[none, _, ours]| ours / none);
    println!(
        "{:<14}{:<10}{none:>16.0}{for_update:>16.0}{ours:>16.0}{vs_for_update:>18.3}{vs_none:>16.3}",
        L::NAME,
        keys.name(),
    );
    report.row(json!({
        "library": L::NAME,
        "keys": keys.name(),
        "none_per_second": none,
        "for_update_per_second": for_update,
        "ours_per_second": ours,
        "ours_over_for_update": vs_for_update,
        "ours_over_none": vs_none,
    }));
    if keys == Keys::Distinct {
        let name = format!("{}.vs_for_update", L::NAME);
        report.figure(&name, vs_for_update, Goal::AtLeast(L::GOAL));
    }
}

/// How long a turn may last beyond its length before it counts as stuck.
const PATIENCE: Duration = Duration::from_secs(60);
