//! Acquire and release: latchwork beside its peers, on one server, in one run.

mod contender;
mod contenders;
mod contest;
mod figures;

use std::thread::available_parallelism;

use latchwork_harness::Cluster;
use latchwork_postgres::{Postgres, PostgresOptions};

use self::contest::Contest;
use crate::{Failure, arguments::Arguments, report::Report, runtime};

pub(crate) use self::figures::child::{CHILD, child};

/// Room for all pools of one runtime at once.
const CONNECTIONS_OF_A_RUNTIME: usize = 300;
/// Room for what is not a contest.
const OTHER_CONNECTIONS: usize = 100;
/// Room for the locks that [`figures::memory`] holds.
const MAX_LOCKS_PER_TRANSACTION: u32 = 256;

/// Worker threads for what is not a contest, as many as a runtime takes by default on two cores.
pub(crate) const FIGURES_THREADS: usize = 2;

/// Measures everything that is wanted.
pub(crate) fn compare(arguments: &Arguments) -> Result<(), Failure> {
    let connections = OTHER_CONNECTIONS + CONNECTIONS_OF_A_RUNTIME * arguments.threads.len();
    let cluster = Cluster::builder()
        .setting("max_connections", connections)
        .setting("max_locks_per_transaction", MAX_LOCKS_PER_TRANSACTION)
        .start()?;
    let mut report = Report::new("locks");
    let server = cluster.psql("SHOW server_version")?;
    let cores = available_parallelism()?.get();
    println!("PostgreSQL {server} on {cores} cores, fsync off, over its unix socket");
    report.fact("postgresql", server);
    report.fact("cores", cores);
    report.fact("rounds", arguments.rounds);
    report.fact("figures_threads", FIGURES_THREADS);
    Contest::gather(arguments, &cluster.url(), &mut report)?.hold(arguments, &mut report)?;
    runtime(FIGURES_THREADS)?.block_on(measure(arguments, &cluster, &mut report))?;
    match &arguments.json {
        Some(path) => report.write(path),
        None => Ok(()),
    }
}

async fn measure(arguments: &Arguments, cluster: &Cluster, report: &mut Report) -> Result<(), Failure> {
    let url = cluster.url();
    let postgres = connect(&url).await?;
    println!("\nwith {FIGURES_THREADS} worker threads:");
    if arguments.wants("select1") {
        figures::latency::measure(&url, &postgres, report).await?;
    }
    if arguments.wants("mutex") {
        figures::hand_over::measure(&postgres, report).await?;
    }
    if arguments.wants("turn") {
        figures::turn::measure(&url, &postgres, report).await?;
    }
    if arguments.wants("memory") {
        figures::memory::measure(&url, report).await?;
    }
    postgres.locks().close().await;
    Ok(())
}

async fn connect(url: &str) -> Result<Postgres, Failure> {
    Ok(Postgres::connect(url.parse()?, PostgresOptions::default()).await?)
}
