//! Schedulers in several processes on one database.

use std::{
    convert::Infallible,
    sync::{Arc, Mutex},
    time::{Duration, Instant, SystemTime},
};

use latchwork_core::once::{Job, Missed, OnceError, RunEnd, Schedule, Scheduler};
use latchwork_harness::{Cluster, StopMode};
use latchwork_postgres::{Postgres, schema::install};
use tokio::{task::JoinHandle, time::sleep};
use tokio_util::sync::CancellationToken;

use super::{HOUR, SECOND, installed, installed_on_major};
use crate::onlooker::{Onlooker, SOON, assert_quiet, connect, eventually, majors, quick};

const INTERVAL: Duration = Duration::from_millis(200);

struct Process {
    postgres: Postgres,
    scheduler: Arc<Scheduler>,
    stop: CancellationToken,
    runs: JoinHandle<()>,
}

impl Process {
    /// A process whose job stores its tick, in a table in which no tick can be twice.
    async fn new(cluster: &Cluster, missed: Missed) -> Self {
        let postgres = connect(&cluster.url(), quick()).await;
        let url = cluster.url();
        let store = move |tick| {
            let url = url.clone();
            async move {
                let (client, connection) = tokio_postgres::connect(&url, tokio_postgres::NoTls).await?;
                tokio::spawn(connection);
                client.execute("INSERT INTO runs VALUES ($1)", &[&tick]).await.map(drop)
            }
        };
        let job = Job::new("job", &Schedule::every(INTERVAL).unwrap(), store).with_missed(missed);
        let scheduler = Arc::new(Scheduler::new(&postgres.locks()).with_job(job).unwrap());
        let (stop, runs) = (CancellationToken::new(), Arc::clone(&scheduler));
        let stopped = stop.clone();
        let runs = tokio::spawn(async move { runs.run_until(stopped.cancelled()).await });
        Self {
            postgres,
            scheduler,
            stop,
            runs,
        }
    }

    async fn stop(self) {
        self.stop.cancel();
        self.runs.await.unwrap();
        self.postgres.locks().close().await;
    }
}

async fn runs(onlooker: &Onlooker) -> i64 {
    onlooker.number("SELECT count(*) FROM runs").await
}

/// How many ticks between the first and the last were not run.
async fn gaps(onlooker: &Onlooker) -> i64 {
    let gaps = "SELECT round(extract(epoch FROM max(tick) - min(tick)) * 5)::int8 + 1 - count(*) FROM runs";
    onlooker.number(gaps).await
}

#[tokio::test(flavor = "multi_thread")]
async fn on_every_major_two_processes_run_each_tick_and_one_goes_on_when_the_other_ends() {
    for installation in majors() {
        let (cluster, onlooker) = installed_on_major(installation).await;
        let all = Missed::RunAll {
            at_most: 1_000.try_into().unwrap(),
        };
        let (one, other) = (Process::new(&cluster, all).await, Process::new(&cluster, all).await);
        eventually("some have run", async || runs(&onlooker).await > 5).await;
        let report = one.scheduler.reports().await.unwrap().remove(0);
        let last = report.last.unwrap();
        let identities = [one.postgres.identity(), other.postgres.identity()].map(ToString::to_string);
        assert!(identities.contains(&last.claimed_by), "{last:?}");
        assert!(report.next.unwrap() > last.tick);
        one.stop().await;
        let until_then = runs(&onlooker).await;
        eventually("more have run", async || runs(&onlooker).await > until_then + 5).await;
        other.stop().await;
        assert_eq!(gaps(&onlooker).await, 0);
        let failed = "SELECT count(*) FROM latchwork.ticks WHERE outcome <> 'done'";
        assert_eq!(onlooker.number(failed).await, 0);
        assert_quiet(&cluster);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn after_an_outage_what_was_missed_is_run_in_order_and_nothing_twice() {
    let (cluster, onlooker) = installed().await;
    let all = Missed::RunAll {
        at_most: 1_000.try_into().unwrap(),
    };
    let processes = [Process::new(&cluster, all).await, Process::new(&cluster, all).await];
    eventually("some have run", async || runs(&onlooker).await > 3).await;
    drop(onlooker);
    cluster.stop(StopMode::Immediate).unwrap();
    eventually("it is noticed", async || {
        processes[0].scheduler.reports().await.is_err()
    })
    .await;
    let error = processes[0].scheduler.reports().await.unwrap_err();
    assert!(
        matches!(&error, OnceError::Ledger(error) if error.is_outage()),
        "{error:?}"
    );
    sleep(SECOND).await;
    cluster.restart(StopMode::Fast).unwrap();
    let onlooker = Onlooker::new(&cluster.url()).await;
    let until_then = runs(&onlooker).await;
    eventually("more have run", async || runs(&onlooker).await > until_then + 10).await;
    for process in processes {
        process.stop().await;
    }
    // A run that had begun when the server went is not begun again: at most once.
    let gaps = gaps(&onlooker).await;
    assert!(gaps <= 2, "{gaps} ticks were not run");
}

#[tokio::test(flavor = "multi_thread")]
async fn without_the_table_a_scheduler_says_so_and_begins_once_it_is_there() {
    let cluster = Cluster::start().unwrap();
    let onlooker = Onlooker::new(&cluster.url()).await;
    onlooker
        .0
        .batch_execute("CREATE TABLE runs (tick timestamptz PRIMARY KEY)")
        .await
        .unwrap();
    let process = Process::new(&cluster, Missed::RunOnce).await;
    let error = process.scheduler.reports().await.unwrap_err();
    assert!(!error.is_outage(), "{error:?}");
    assert_eq!(runs(&onlooker).await, 0);
    install(&onlooker.0).await.unwrap();
    eventually("it runs", async || runs(&onlooker).await > 0).await;
    process.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_job_that_fails_is_told_of_in_every_process() {
    let (cluster, _onlooker) = installed().await;
    let hourly = Schedule::every(HOUR).unwrap();
    let scheduler = async || {
        let locks = connect(&cluster.url(), quick()).await.locks();
        let job = Job::new("fails", &hourly, |_| async { Err("no paper") });
        Scheduler::new(&locks)
            .with_job(job.with_missed(Missed::RunOnce))
            .unwrap()
    };
    let (one, other) = (scheduler().await, scheduler().await);
    // What it has not run yet becomes known, and then the hour before is what it has missed.
    let locks = connect(&cluster.url(), quick()).await.locks();
    let before = hourly.last_at(super::now()).unwrap() - HOUR;
    locks.once("fails").tick(before, HOUR).run(async {}).await.unwrap();
    let failed = async {
        eventually("it has failed", async || {
            let report = other.reports().await.unwrap().remove(0);
            report.last.is_some_and(|last| last.end == Some(RunEnd::Failed))
        })
        .await;
    };
    one.run_until(failed).await;
}

/// A commit that waits for a standby is not undone by a session that ends: the claim is there, and nobody has heard so.
#[tokio::test(flavor = "multi_thread")]
async fn a_standby_that_is_away_holds_up_no_locks_and_a_claim_whose_answer_was_lost_is_made_again() {
    let (cluster, onlooker) = installed().await;
    let postgres = connect(&cluster.url(), quick()).await;
    let locks = postgres.locks();
    let guard = locks.acquire("other").within(SOON).await.unwrap();
    let ticks: Arc<Mutex<Vec<SystemTime>>> = Arc::default();
    let noted = Arc::clone(&ticks);
    let job = Job::new("job", &Schedule::every(INTERVAL).unwrap(), move |tick| {
        noted.lock().unwrap().push(tick);
        async { Ok::<(), Infallible>(()) }
    });
    let all = Missed::RunAll {
        at_most: 1_000.try_into().unwrap(),
    };
    let scheduler = Scheduler::new(&locks).with_job(job.with_missed(all)).unwrap();
    let count = || ticks.lock().unwrap().len();
    let story = async {
        eventually("some have run", async || count() > 3).await;
        onlooker
            .0
            .batch_execute("ALTER SYSTEM SET synchronous_commit = on")
            .await
            .unwrap();
        let standby = async |name| {
            let set = format!("ALTER SYSTEM SET synchronous_standby_names = '{name}'");
            onlooker.0.batch_execute(&set).await.unwrap();
            onlooker.value("SELECT pg_reload_conf()").await;
        };
        standby("away").await;
        let claims = "SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'SyncRep' AND query LIKE '%AS turn%'";
        eventually("a claim waits for it", async || onlooker.number(claims).await > 0).await;
        let begun = Instant::now();
        while begun.elapsed() < 3 * SECOND {
            assert!(guard.is_held());
            locks
                .acquire("third")
                .within(SOON)
                .await
                .unwrap()
                .release()
                .await
                .unwrap();
            sleep(Duration::from_millis(10)).await;
        }
        assert!(onlooker.number(claims).await > 0, "nobody has heard of it");
        let until_then = count();
        standby("").await;
        eventually("more have run", async || count() > until_then + 10).await;
    };
    scheduler.run_until(story).await;
    assert!(guard.is_held());
    let ticks = ticks.lock().unwrap().clone();
    for pair in ticks.windows(2) {
        assert_eq!(pair[1].duration_since(pair[0]).unwrap(), INTERVAL, "{ticks:?}");
    }
}
