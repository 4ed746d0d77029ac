//! The contenders against each other: short rounds in turn, so that what disturbs the machine disturbs all alike.

use std::time::Duration;

use latchwork_harness::{Redis as RedisServer, find_program};
use serde_json::json;
use tokio::runtime::Runtime;

use super::{
    contender::{Entrant, Round},
    contenders::{Ceiling, Ours, Pipelined, Pooled, Redis, Release},
};
use crate::{
    Failure,
    arguments::Arguments,
    report::{Goal, Report},
    runtime,
    statistics::{median, quantile},
};

/// Sizes of the pools; the better one counts.
const POOLS: [usize; 2] = [16, 64];
/// How many tasks the figures are about.
const FIGURES_AT: usize = 512;
/// A round that is not counted: connections are opened, statements prepared.
const WARM_UP: Duration = Duration::from_millis(100);

const OURS: &str = "ours";

/// All who take part.
pub(crate) struct Contest {
    lanes: Vec<Lane>,
    /// Kept for as long as its contender.
    _redis: Option<RedisServer>,
}

/// The contenders on one runtime.
struct Lane {
    threads: usize,
    runtime: Runtime,
    entrants: Vec<(String, Box<dyn Entrant>)>,
}

/// What the rounds of one contender have shown together.
struct Standing {
    name: String,
    threads: usize,
    per_second: f64,
    samples: Vec<u64>,
}

impl Contest {
    /// Makes those who are wanted.
    pub(crate) fn gather(arguments: &Arguments, url: &str, report: &mut Report) -> Result<Self, Failure> {
        let redis = if arguments.wants("redis") {
            start_redis(report)?
        } else {
            None
        };
        let lane = |threads: &usize| Lane::new(*threads, arguments, url, redis.as_ref());
        Ok(Self {
            lanes: arguments.threads.iter().map(lane).collect::<Result<_, _>>()?,
            _redis: redis,
        })
    }

    /// Holds all rounds, and reports.
    pub(crate) fn hold(&self, arguments: &Arguments, report: &mut Report) -> Result<(), Failure> {
        if self.lanes.iter().all(|lane| lane.entrants.is_empty()) {
            return Ok(());
        }
        println!(
            "\n{:>5}{:>9}  {:<20}{:>14}{:>14}{:>14}{:>14}",
            "tasks", "threads", "contender", "cycles/s", "acquire p50", "acquire p99", "ours is"
        );
        for tasks in &arguments.tasks {
            let standings = self.rounds(*tasks, arguments)?;
            tell(*tasks, &standings, report);
            if *tasks == FIGURES_AT {
                conclude(&standings, report);
            }
        }
        Ok(())
    }

    fn rounds(&self, tasks: usize, arguments: &Arguments) -> Result<Vec<Standing>, Failure> {
        let count = self.lanes.iter().map(|lane| lane.entrants.len()).max().unwrap_or(0);
        let turns = || (0..count).flat_map(|at| self.lanes.iter().map(move |lane| (lane, at)));
        for (lane, at) in turns() {
            lane.round(at, tasks, WARM_UP)?;
        }
        let mut rounds: Vec<Vec<Round>> = turns().map(|_| Vec::new()).collect();
        for number in 1..=arguments.rounds {
            eprintln!("       {tasks} tasks, round {number} of {}", arguments.rounds);
            for ((lane, at), rounds) in turns().zip(&mut rounds) {
                rounds.push(lane.round(at, tasks, arguments.length)?);
            }
        }
        Ok(turns()
            .zip(rounds)
            .map(|((lane, at), rounds)| Standing::new(&lane.entrants[at].0, lane.threads, rounds))
            .collect())
    }
}

impl Lane {
    fn new(threads: usize, arguments: &Arguments, url: &str, redis: Option<&RedisServer>) -> Result<Self, Failure> {
        let runtime = runtime(threads)?;
        Ok(Self {
            threads,
            entrants: runtime.block_on(entrants(arguments, url, redis))?,
            runtime,
        })
    }

    fn round(&self, at: usize, tasks: usize, length: Duration) -> Result<Round, Failure> {
        let (name, entrant) = &self.entrants[at];
        let round = self.runtime.block_on(entrant.round(tasks, length));
        round.map_err(|failure| format!("{name} with {tasks} tasks: {failure}").into())
    }
}

async fn entrants(
    arguments: &Arguments,
    url: &str,
    redis: Option<&RedisServer>,
) -> Result<Vec<(String, Box<dyn Entrant>)>, Failure> {
    let mut entrants: Vec<(String, Box<dyn Entrant>)> = Vec::new();
    if arguments.wants(OURS) {
        entrants.push((OURS.into(), Box::new(Ours::connect(url, Release::Dropped).await?)));
    }
    if arguments.wants("ours-awaited") {
        let entrant = Ours::connect(url, Release::Awaited).await?;
        entrants.push(("ours-awaited".into(), Box::new(entrant)));
    }
    if arguments.wants("pool") {
        for size in POOLS {
            entrants.push((format!("pool-{size}"), Box::new(Pooled::new(url, size)?)));
        }
    }
    if arguments.wants("pipelined") {
        entrants.push(("pipelined".into(), Box::new(Pipelined::connect(url).await?)));
    }
    #[cfg(feature = "peers")]
    add_peers(arguments, url, &mut entrants).await?;
    if let Some(redis) = redis {
        entrants.push(("redis".into(), Box::new(Redis::connect(&redis.unix_url()).await?)));
    }
    if arguments.wants("ceiling") {
        entrants.push(("ceiling".into(), Box::new(Ceiling::connect(url).await?)));
    }
    Ok(entrants)
}

impl Standing {
    fn new(name: &str, threads: usize, rounds: Vec<Round>) -> Self {
        let speeds = rounds
            .iter()
            .map(|round| round.cycles as f64 / round.elapsed.as_secs_f64())
            .collect();
        let mut samples: Vec<u64> = rounds.into_iter().flat_map(|round| round.samples).collect();
        samples.sort_unstable();
        Self {
            name: name.to_owned(),
            threads,
            per_second: median(speeds),
            samples,
        }
    }

    fn micros(&self, share: f64) -> Option<f64> {
        (!self.samples.is_empty()).then(|| quantile(&self.samples, share) as f64 / 1_000.0)
    }
}

fn tell(tasks: usize, standings: &[Standing], report: &mut Report) {
    for standing in standings {
        let ours = standings
            .iter()
            .find(|other| other.name == OURS && other.threads == standing.threads);
        let ratio = ours.map(|ours| ours.per_second / standing.per_second);
        let (p50, p99) = (standing.micros(0.5), standing.micros(0.99));
        println!(
            "{tasks:>5}{:>9}  {:<20}{:>14.0}{:>14}{:>14}{:>14}",
            standing.threads,
            standing.name,
            standing.per_second,
            shown(p50, "us"),
            shown(p99, "us"),
            shown(ratio, "x"),
        );
        report.row(json!({
            "tasks": tasks,
            "threads": standing.threads,
            "contender": standing.name,
            "cycles_per_second": standing.per_second,
            "acquire_p50_us": p50,
            "acquire_p99_us": p99,
            "ours_over_it": ratio,
        }));
    }
}

fn shown(value: Option<f64>, unit: &str) -> String {
    value.map_or_else(|| "-".to_owned(), |value| format!("{value:.2} {unit}"))
}

fn conclude(standings: &[Standing], report: &mut Report) {
    let Some(ours) = speed(standings, |name| name == OURS) else {
        return;
    };
    println!();
    if let Some(pool) = speed(standings, |name| name.starts_with("pool-")) {
        report.figure("vs_pool", ours / pool, Goal::AtLeast(20.0));
    }
    if let Some(redis) = speed(standings, |name| name == "redis") {
        report.figure("vs_redis", ours / redis, Goal::AtLeast(4.0));
    }
    if let Some(ceiling) = speed(standings, |name| name == "ceiling") {
        report.figure("vs_ceiling", ours / ceiling, Goal::AtLeast(0.25));
    }
}

/// The cycles per second of the fastest of those with such a name, on whatever runtime that is.
fn speed(standings: &[Standing], is_one: impl Fn(&str) -> bool) -> Option<f64> {
    let speeds = standings
        .iter()
        .filter(|standing| is_one(&standing.name))
        .map(|standing| standing.per_second);
    speeds.max_by(f64::total_cmp)
}

fn start_redis(report: &mut Report) -> Result<Option<RedisServer>, Failure> {
    if find_program("redis-server").is_none() {
        report.note("NOTICE: without Redis: redis-server is not installed (Debian's package redis-server)");
        return Ok(None);
    }
    Ok(Some(RedisServer::start()?))
}

#[cfg(feature = "peers")]
async fn add_peers(
    arguments: &Arguments,
    url: &str,
    entrants: &mut Vec<(String, Box<dyn Entrant>)>,
) -> Result<(), Failure> {
    use super::contenders::{DistributedLock, Sqlx};

    for size in POOLS {
        if arguments.wants("sqlx") {
            entrants.push((format!("sqlx-{size}"), Box::new(Sqlx::connect(url, size).await?)));
        }
        if arguments.wants("distributed-lock") {
            let entrant = DistributedLock::connect(url, size).await?;
            entrants.push((format!("distributed-lock-{size}"), Box::new(entrant)));
        }
    }
    Ok(())
}
