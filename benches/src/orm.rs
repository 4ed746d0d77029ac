//! A locked transaction of each database library, beside the same one without a lock and with `SELECT .. FOR UPDATE`.

mod contest;
mod cpu;
mod fence;
mod job;
mod libraries;
mod library;
mod stock;
mod trips;

use std::thread::available_parallelism;

use latchwork_harness::Cluster;

use self::{
    libraries::{Deadpool, Diesel, DieselAsync, SeaOrm, Sqlx},
    library::Library,
    stock::Stock,
};
use crate::{Failure, arguments::Arguments, report::Report, runtime};

/// So many tasks work at once, each with a connection if it wants one.
const TASKS: u32 = 16;
/// Worker threads of the client, as many as a runtime takes by default on two cores.
const THREADS: usize = 2;
/// Room for the locks that [`fence`] holds.
const MAX_LOCKS_PER_TRANSACTION: u32 = 256;

/// Measures everything that is wanted.
pub(crate) fn compare(arguments: &Arguments) -> Result<(), Failure> {
    let cluster = Cluster::builder()
        .setting("max_connections", 200)
        .setting("max_locks_per_transaction", MAX_LOCKS_PER_TRANSACTION)
        .start()?;
    let mut report = Report::new("orm");
    let server = cluster.psql("SHOW server_version")?;
    let cores = available_parallelism()?.get();
    println!("PostgreSQL {server} on {cores} cores, fsync off, over its unix socket; {TASKS} tasks and connections");
    report.fact("postgresql", server);
    report.fact("cores", cores);
    report.fact("tasks", TASKS);
    report.fact("rounds", arguments.rounds);
    runtime(THREADS)?.block_on(Stock::create(&cluster.url(), TASKS.into()))?;
    contest::tell_columns();
    measure::<Deadpool>(arguments, &cluster, &mut report)?;
    measure::<Diesel>(arguments, &cluster, &mut report)?;
    measure::<DieselAsync>(arguments, &cluster, &mut report)?;
    measure::<SeaOrm>(arguments, &cluster, &mut report)?;
    measure::<Sqlx>(arguments, &cluster, &mut report)?;
    if arguments.wants("fence") {
        println!();
        runtime(THREADS)?.block_on(fence::measure(&cluster.url(), &mut report))?;
    }
    match &arguments.json {
        Some(path) => report.write(path),
        None => Ok(()),
    }
}

fn measure<L: Library>(arguments: &Arguments, cluster: &Cluster, report: &mut Report) -> Result<(), Failure> {
    if !arguments.wants(L::NAME) {
        return Ok(());
    }
    // The connections of a library go with its runtime.
    runtime(THREADS)?.block_on(contest::hold::<L>(cluster, arguments, report))?;
    trips::count::<L>(cluster, report)
}
