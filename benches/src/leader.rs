//! Leaders: how soon the next one works after the last one was killed or has resigned, and what a follower costs.

mod heartbeat;
mod idle;
mod trials;

use std::{io::Write as _, time::Duration};

use latchwork_core::leader::Candidate;
use latchwork_harness::Cluster;
use latchwork_postgres::{Postgres, PostgresOptions};
use serde_json::json;

use crate::{
    Failure,
    arguments::Arguments,
    report::{Goal, Report},
    runtime,
    statistics::median,
};

/// The word that makes this program the leader that is killed.
pub(crate) const CHILD: &str = "leader-child";

/// Worker threads of the followers.
const THREADS: usize = 2;
/// How often a leader is killed, and how often one resigns.
const TRIALS: usize = 20;
/// Fewer for those who are waited for for seconds.
const HEARTBEAT_TRIALS: usize = 5;
/// Followers, in two runs.
const FOLLOWERS: [usize; 2] = [5, 100];
const NAME: &str = "leader";

/// Measures everything that is wanted.
pub(crate) fn compare(arguments: &Arguments) -> Result<(), Failure> {
    let cluster = Cluster::builder().setting("max_connections", 400).start()?;
    let mut report = Report::new("leader");
    let server = cluster.psql("SHOW server_version")?;
    println!("PostgreSQL {server}, fsync off, over its unix socket; {TRIALS} trials");
    report.fact("postgresql", server);
    report.fact("trials", TRIALS);
    runtime(THREADS)?.block_on(measure(arguments, &cluster, &mut report))?;
    match &arguments.json {
        Some(path) => report.write(path),
        None => Ok(()),
    }
}

async fn measure(arguments: &Arguments, cluster: &Cluster, report: &mut Report) -> Result<(), Failure> {
    let (mut medians, mut worst) = (Vec::new(), 0.0);
    for followers in FOLLOWERS {
        if arguments.wants("failover") {
            let times = trials::kills(cluster, followers).await?;
            let times = tell(&format!("killed, {followers} followers"), times, report);
            worst = times.iter().copied().fold(worst, f64::max);
            medians.push(median(times));
        }
    }
    if let Some(slower) = medians.iter().copied().reduce(f64::max) {
        report.figure("failover_median_ms", slower, Goal::AtMost(100.0));
        report.figure("failover_max_ms", worst, Goal::AtMost(1_000.0));
    }
    if arguments.wants("resign") {
        let times = tell(
            "resigned, 5 followers",
            trials::resignations(cluster, FOLLOWERS[0]).await?,
            report,
        );
        report.figure("resign_median_ms", median(times), Goal::AtMost(20.0));
    }
    if arguments.wants("heartbeat") {
        tell("killed, 3 s heartbeat", heartbeat::kills(cluster).await?, report);
    }
    if arguments.wants("idle") {
        let queries = idle::queries_per_second(cluster).await?;
        report.figure("idle_qps_per_follower", queries, Goal::AtMost(0.5));
    }
    Ok(())
}

/// Tells the times of trials, and returns them in milliseconds.
fn tell(name: &str, times: Vec<Duration>, report: &mut Report) -> Vec<f64> {
    let times: Vec<f64> = times.iter().map(|time| time.as_secs_f64() * 1_000.0).collect();
    let (middle, worst) = (median(times.clone()), times.iter().copied().fold(0.0, f64::max));
    println!("{name:<32}{middle:>10.1} ms median{worst:>10.1} ms at most");
    report.row(json!({ "trial": name, "median_ms": middle, "max_ms": worst }));
    times
}

async fn connect(url: &str) -> Result<Postgres, Failure> {
    Ok(Postgres::connect(url.parse()?, PostgresOptions::default()).await?)
}

/// The leader that is killed: says so when it leads.
pub(crate) fn child(mut words: impl Iterator<Item = String>) -> Result<(), Failure> {
    let (Some(kind), Some(url)) = (words.next(), words.next()) else {
        return Err("this is a part of the comparison: start that".into());
    };
    runtime(1)?.block_on(async {
        if kind == "heartbeat" {
            return heartbeat::lead(&url).await;
        }
        let locks = connect(&url).await?.locks();
        // Leaves a session that is old enough to lead on.
        locks
            .acquire_fenced(format!("ready {}", std::process::id()))
            .without_limit()
            .await?
            .release()
            .await?;
        println!("ready");
        std::io::stdout().flush()?;
        std::io::stdin().read_line(&mut String::new())?;
        let candidate: Candidate = locks.leader(NAME).campaign()?;
        let works = candidate.run(|leading, cancel| async move {
            println!("works {}", leading.term());
            std::io::stdout().flush()?;
            cancel.cancelled().await;
            Ok::<_, std::io::Error>(())
        });
        match works.await {
            Some(Err(error)) => Err(error.into()),
            Some(Ok(())) | None => Ok(()),
        }
    })
}
