//! The three ways of one library against each other: short turns by rounds, so that what disturbs the machine disturbs
//! all alike.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

use latchwork_harness::Cluster;
use serde_json::json;
use tokio::{
    task::JoinSet,
    time::{sleep, timeout},
};

use super::{
    TASKS,
    cpu::Cpu,
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

/// Each way in one round, in the order of [`Lock::ALL`].
type Round = [Turn; 3];

/// One way in one round.
#[derive(Clone, Copy, Debug, Default)]
struct Turn {
    /// Transactions per second.
    speed: f64,
    /// Microseconds of processor time of a transaction.
    client: f64,
    server: f64,
}

pub(crate) fn tell_columns() {
    println!(
        "\n{:<14}{:<10}{:>12}{:>14}{:>10}{:>17}{:>14}   processor time of each, client + server (us)",
        "library", "keys", "no lock/s", "FOR UPDATE/s", "ours/s", "ours/FOR UPDATE", "ours/no lock",
    );
}

pub(crate) async fn hold<L: Library>(
    cluster: &Cluster,
    arguments: &Arguments,
    report: &mut Report,
) -> Result<(), Failure> {
    let library = Arc::new(L::connect(&cluster.url(), TASKS).await?);
    let stock = Stock::connect(&cluster.url()).await?;
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
            let round = round(&library, &stock, cluster, keys, arguments.length).await;
            let round = round.map_err(|failure| format!("{}: {failure}", L::NAME))?;
            if number > 0 {
                rounds.push(round);
            }
        }
        tell::<L>(keys, &rounds, report);
    }
    Ok(())
}

async fn round<L: Library>(
    library: &Arc<L>,
    stock: &Stock,
    cluster: &Cluster,
    keys: Keys,
    length: Duration,
) -> Result<Round, Failure> {
    let mut round = Round::default();
    for (lock, of_lock) in Lock::ALL.into_iter().zip(&mut round) {
        let before = stock.taken().await?;
        let (started, cpu) = (Instant::now(), Cpu::used(cluster)?);
        let done = timeout(length + PATIENCE, turn(library, lock, keys, length)).await??;
        let used = Cpu::used(cluster)?;
        let micros = |used: u64, before: u64| used.saturating_sub(before) as f64 / 1_000.0 / done as f64;
        *of_lock = Turn {
            speed: done as f64 / started.elapsed().as_secs_f64(),
            client: micros(used.client, cpu.client),
            server: micros(used.server, cpu.server),
        };
        let taken = stock.taken().await? - before;
        if lock != Lock::None && taken.try_into() != Ok(done) {
            return Err(format!("{}: {done} transactions have taken {taken}", lock.name()).into());
        }
    }
    Ok(round)
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
    let [none, for_update, ours] = [0, 1, 2].map(|at| over(&|round| round[at].speed));
    let cpu = [0, 1, 2].map(|at| (over(&|round| round[at].client), over(&|round| round[at].server)));
    // Within a round, so that it does not matter if the machine was slower in one than in another.
    let vs_for_update = over(&|[_, for_update, ours]| ours.speed / for_update.speed);
    let vs_none = over(&|[none, _, ours]| ours.speed / none.speed);
    let [used_none, used_for_update, used_ours] = cpu.map(|(client, server)| format!("{client:.0} + {server:.0}"));
    println!(
        "{:<14}{:<10}{none:>12.0}{for_update:>14.0}{ours:>10.0}{vs_for_update:>17.3}{vs_none:>14.3}   \
         {used_none}, {used_for_update}, {used_ours}",
        L::NAME,
        keys.name(),
    );
    let cpu_of = |at: usize| json!({ "client": cpu[at].0, "server": cpu[at].1 });
    report.row(json!({
        "library": L::NAME,
        "keys": keys.name(),
        "none_per_second": none,
        "for_update_per_second": for_update,
        "ours_per_second": ours,
        "ours_over_for_update": vs_for_update,
        "ours_over_none": vs_none,
        "cpu_us": { "none": cpu_of(0), "for_update": cpu_of(1), "ours": cpu_of(2) },
    }));
    if keys == Keys::Distinct {
        let name = format!("{}.vs_for_update", L::NAME);
        report.figure(&name, vs_for_update, Goal::AtLeast(L::GOAL));
    }
}

/// How long a turn may last beyond its length before it counts as stuck.
const PATIENCE: Duration = Duration::from_secs(60);
