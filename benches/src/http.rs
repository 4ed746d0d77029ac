//! Requests to an axum service on the loopback: with our layers, with those of peers, and with none.

mod client;
mod redis_limit;
mod rows;
mod services;

use std::thread::available_parallelism;

use latchwork_harness::{Cluster, Redis, find_program};
use serde_json::json;
use tokio::runtime::Runtime;

use self::{
    client::{Client, Round},
    services::{Context, Service},
};
use crate::{
    Failure,
    arguments::Arguments,
    report::{Goal, Report},
    runtime,
    statistics::{median, quantile},
};

/// Connections of the client.
const CONNECTIONS: usize = 64;
/// Rate limits are charged to so many keys in turn.
const KEYS: u64 = 10_000;
/// Worker threads of the services, as many as a runtime takes by default on two cores.
const THREADS: usize = 2;

/// Measures everything that is wanted.
pub(crate) fn compare(arguments: &Arguments) -> Result<(), Failure> {
    let cluster = Cluster::builder().setting("max_connections", 200).start()?;
    let mut report = Report::new("http");
    let server = cluster.psql("SHOW server_version")?;
    let cores = available_parallelism()?.get();
    println!("PostgreSQL {server} on {cores} cores, fsync off; {CONNECTIONS} connections over the loopback");
    report.fact("postgresql", server);
    report.fact("cores", cores);
    report.fact("connections", CONNECTIONS);
    report.fact("rounds", arguments.rounds);
    let redis = start_redis(&mut report)?;
    let runtime = runtime(THREADS)?;
    let context = runtime.block_on(Context::new(&cluster.url(), redis.as_ref()))?;
    let contest = Contest::gather(arguments, &runtime, &context)?;
    let standings = contest.hold(arguments)?;
    tell(&standings, &mut report);
    conclude(&standings, &mut report);
    if arguments.wants("rows") {
        runtime.block_on(rows::measure(&context, &mut report))?;
    }
    match &arguments.json {
        Some(path) => report.write(path),
        None => Ok(()),
    }
}

/// The services that take part, each with its connections.
struct Contest {
    entrants: Vec<(Service, Client)>,
}

/// What the rounds of one service have shown together.
struct Standing {
    name: &'static str,
    per_second: f64,
    latencies: Vec<u64>,
}

impl Contest {
    fn gather(arguments: &Arguments, runtime: &Runtime, context: &Context) -> Result<Self, Failure> {
        let mut entrants = Vec::new();
        for service in Service::ALL {
            if !arguments.wants(service.name()) {
                continue;
            }
            let Some(address) = runtime.block_on(service.serve(context))? else {
                continue;
            };
            entrants.push((service, Client::connect(address, CONNECTIONS)?));
        }
        Ok(Self { entrants })
    }

    fn hold(mut self, arguments: &Arguments) -> Result<Vec<Standing>, Failure> {
        let mut rounds: Vec<Vec<Round>> = self.entrants.iter().map(|_| Vec::new()).collect();
        // The first is not counted: statements are prepared in it, and connections opened.
        for number in 0..=arguments.rounds {
            eprintln!("       round {number} of {}", arguments.rounds);
            for ((service, client), rounds) in self.entrants.iter_mut().zip(&mut rounds) {
                let round = client
                    .round(arguments.length)
                    .map_err(|failure| format!("{}: {failure}", service.name()))?;
                if number > 0 {
                    rounds.push(round);
                }
            }
        }
        let names = self.entrants.iter().map(|(service, _)| service.name());
        Ok(names
            .zip(rounds)
            .map(|(name, rounds)| Standing::new(name, rounds))
            .collect())
    }
}

impl Standing {
    fn new(name: &'static str, rounds: Vec<Round>) -> Self {
        let speeds = rounds.iter().map(Round::per_second).collect();
        let mut latencies: Vec<u64> = rounds.into_iter().flat_map(|round| round.latencies).collect();
        latencies.sort_unstable();
        Self {
            name,
            per_second: median(speeds),
            latencies,
        }
    }

    fn micros(&self, share: f64) -> f64 {
        quantile(&self.latencies, share) as f64 / 1_000.0
    }
}

fn tell(standings: &[Standing], report: &mut Report) {
    println!("\n{:<28}{:>14}{:>14}{:>14}", "service", "requests/s", "p50", "p99");
    for standing in standings {
        let (p50, p99) = (standing.micros(0.5), standing.micros(0.99));
        println!(
            "{:<28}{:>14.0}{p50:>11.0} us{p99:>11.0} us",
            standing.name, standing.per_second
        );
        report.row(json!({
            "service": standing.name,
            "requests_per_second": standing.per_second,
            "p50_us": p50,
            "p99_us": p99,
        }));
    }
    println!();
}

fn conclude(standings: &[Standing], report: &mut Report) {
    let speed = |service: Service| {
        let standing = standings.iter().find(|standing| standing.name == service.name());
        standing.map(|standing| standing.per_second)
    };
    let mut figure = |name, over: Service, under: Service, goal| {
        if let (Some(over), Some(under)) = (speed(over), speed(under)) {
            report.figure(name, over / under, goal);
        }
    };
    figure(
        "lock_vs_pooled_xact",
        Service::Lock,
        Service::PooledXact,
        Goal::AtLeast(3.0),
    );
    figure("rate_vs_redis", Service::Rate, Service::RedisRate, Goal::AtLeast(1.0));
    figure("rate_vs_memory", Service::Rate, Service::MemoryRate, Goal::AtLeast(0.5));
    figure("lock_vs_none", Service::Lock, Service::None, Goal::AtLeast(0.0));
    figure("slot_vs_none", Service::Slot, Service::None, Goal::AtLeast(0.0));
}

fn start_redis(report: &mut Report) -> Result<Option<Redis>, Failure> {
    if find_program("redis-server").is_none() {
        report.note("NOTICE: without Redis: redis-server is not installed (Debian's package redis-server)");
        return Ok(None);
    }
    Ok(Some(Redis::start()?))
}
