//! Many holders, some of them mistaken: no transaction of a superseded grant commits.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};

use latchwork_core::{Key, fence::Fence};
use latchwork_harness::{Cluster, PgBouncer, PoolMode};
use tokio_postgres::Client;

use super::{client, proved};
use crate::onlooker::{SOON, connect, quick};

const KEY: Key = Key::bigint(42);
const FOR: Duration = Duration::from_secs(6);

#[derive(Default)]
struct Tally {
    over: AtomicBool,
    committed: AtomicUsize,
    refused: AtomicUsize,
}

impl Tally {
    /// Whether there was anything to be seen.
    fn tells(&self) -> bool {
        self.committed.load(Ordering::Relaxed) > 5 && self.refused.load(Ordering::Relaxed) > 0
    }
}

/// Works under a fence for as long as it can, and a little longer.
async fn works(url: String, fence: Fence, term: String, shared: bool, tally: Arc<Tally>) {
    let mut client = client(&url).await;
    let until = Instant::now() + Duration::from_millis(fastrand::u64(5..120));
    while Instant::now() < until && !tally.over.load(Ordering::Relaxed) && !client.is_closed() {
        match work(&mut client, &fence, &term, shared).await {
            Ok(true) => tally.committed.fetch_add(1, Ordering::Relaxed),
            Ok(false) => 0,
            Err(Refused) if fastrand::bool() => tally.refused.fetch_add(1, Ordering::Relaxed),
            Err(Refused) => break,
        };
    }
}

struct Refused;

/// One transaction; whether it was committed.
async fn work(client: &mut Client, fence: &Fence, term: &str, shared: bool) -> Result<bool, Refused> {
    let transaction = proved(client, fence).await.map_err(|_| Refused)?;
    let insert = format!("INSERT INTO work (term, shared) VALUES ('{term}', {shared})");
    let sleep = format!("SELECT pg_sleep({})", fastrand::f64() * 0.03);
    let mut done = transaction.batch_execute(&insert).await;
    if done.is_ok() && fastrand::bool() {
        done = transaction.batch_execute(&sleep).await;
    }
    Ok(done.is_ok() && transaction.commit().await.is_ok())
}

/// Takes the lock again and again, and leaves workers behind that do not know when it has gone.
async fn leads(url: String, through: String, tally: Arc<Tally>) {
    let locks = connect(&url, quick()).await.locks();
    let marks: Client = client(&url).await;
    let mut workers = Vec::new();
    while !tally.over.load(Ordering::Relaxed) {
        let shared = fastrand::u8(0..4) == 0;
        let acquire = locks.acquire_fenced(KEY);
        let acquire = if shared { acquire.shared() } else { acquire };
        let Ok(guard) = acquire.within(Duration::from_millis(800)).await else {
            continue;
        };
        let term = guard.term().to_string();
        // The server's clock is this machine's.
        let begun = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs_f64();
        let values = format!("'{term}', {shared}, to_timestamp({begun:.6})");
        let begins = format!("INSERT INTO grants (term, shared, begun) VALUES ({values})");
        marks.batch_execute(&begins).await.unwrap();
        for _ in 0..2 {
            let work = works(through.clone(), guard.fence(), term.clone(), shared, Arc::clone(&tally));
            workers.push(tokio::spawn(work));
        }
        tokio::time::sleep(Duration::from_millis(fastrand::u64(0..40))).await;
        drop(guard);
    }
    for worker in workers {
        worker.await.unwrap();
    }
    locks.close().await;
}

/// Ends sessions that hold the lock, at random. Where the machine is so busy that nobody gets to work in between, more
/// slowly and for longer.
async fn kills(cluster: &Cluster, tally: &Tally) {
    let kill = format!(
        "SELECT count(pg_terminate_backend(pid)) FROM pg_locks WHERE locktype = 'advisory' AND granted \
         AND objsubid = 1 AND classid = {} AND objid = {}",
        KEY.classid(),
        KEY.objid()
    );
    let until = Instant::now() + FOR;
    let killer = client(&cluster.url()).await;
    loop {
        let pace = match Instant::now() {
            now if now < until => 1,
            now if now < until + 2 * SOON && !tally.tells() => 10,
            _ => break,
        };
        tokio::time::sleep(Duration::from_millis(pace * fastrand::u64(40..120))).await;
        killer.batch_execute(&kill).await.unwrap();
    }
    tally.over.store(true, Ordering::Relaxed);
}

async fn nobody_works_after_a_later_grant_has_begun(through_pooler: bool) {
    let cluster = Cluster::builder()
        .setting("max_connections", 200)
        .setting("track_commit_timestamp", "on")
        .start()
        .unwrap();
    cluster
        .psql(
            "CREATE TABLE work (term text, shared bool); \
             CREATE TABLE grants (term text, shared bool, begun timestamptz)",
        )
        .unwrap();
    let pooler = PgBouncer::builder(&cluster, PoolMode::Transaction)
        .setting("default_pool_size", 40)
        .start()
        .unwrap();
    let through = if through_pooler { pooler.url() } else { cluster.url() };
    let tally = Arc::new(Tally::default());
    let leaders: Vec<_> = (0..4)
        .map(|_| tokio::spawn(leads(cluster.url(), through.clone(), Arc::clone(&tally))))
        .collect();
    kills(&cluster, &tally).await;
    for leader in leaders {
        tokio::time::timeout(SOON, leader).await.unwrap().unwrap();
    }
    let late = cluster
        .psql(
            "SELECT count(*) FROM work JOIN grants ON work.term < grants.term \
             AND pg_xact_commit_timestamp(work.xmin) > grants.begun AND NOT (work.shared AND grants.shared)",
        )
        .unwrap();
    let grants = cluster.psql("SELECT count(*) FROM grants").unwrap();
    let (committed, refused) = (
        tally.committed.load(Ordering::Relaxed),
        tally.refused.load(Ordering::Relaxed),
    );
    println!("{grants} grants, {committed} transactions, {refused} refused, {late} too late");
    assert_eq!(late, "0");
    assert!(grants.parse::<usize>().unwrap() > 3, "{grants}");
    assert!(tally.tells(), "{committed} {refused}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_transaction_of_a_superseded_grant_commits() {
    nobody_works_after_a_later_grant_has_begun(false).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nor_does_one_through_a_pooler_in_transaction_mode() {
    nobody_works_after_a_later_grant_has_begun(true).await;
}
