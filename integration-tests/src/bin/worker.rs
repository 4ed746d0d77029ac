//! A process that shares shards, for tests that kill or stop it: again and again it notes in a table which shards it believes
//! to have, and when it did. It leaves and ends at SIGTERM.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on must fail, helpers included")]

use std::{
    collections::HashMap,
    time::{Duration, SystemTime},
};

use latchwork_core::shards::{Shard, ShardEvent};
use latchwork_postgres::{Config, Postgres, PostgresOptions, Timing};
use tokio::{
    signal::unix::{SignalKind, signal},
    time::{MissedTickBehavior, interval},
};
use tokio_postgres::NoTls;

const PACE: Duration = Duration::from_millis(10);
const REBALANCE_INTERVAL: Duration = Duration::from_millis(100);

#[tokio::main]
async fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [url, worker, shards, ping_interval, ping_limit] = &arguments[..] else {
        panic!("usage: worker URL WORKER SHARDS PING_INTERVAL PING_LIMIT, both in milliseconds");
    };
    let milliseconds = |text: &str| Duration::from_millis(text.parse().unwrap());
    let options = PostgresOptions::default()
        .with_application_name(worker)
        .with_timing(Timing::new(milliseconds(ping_interval), milliseconds(ping_limit)));
    let postgres = Postgres::connect(url.parse::<Config>().unwrap(), options)
        .await
        .unwrap();
    let (notes, connection) = tokio_postgres::connect(url, NoTls).await.unwrap();
    tokio::spawn(connection);
    let locks = postgres.locks();
    let mut shards = locks
        .shards("mail", shards.parse().unwrap())
        .unwrap()
        .with_rebalance_interval(REBALANCE_INTERVAL)
        .join();

    let mut terminated = signal(SignalKind::terminate()).unwrap();
    let mut pace = interval(PACE);
    pace.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut has: HashMap<u32, (u32, Shard)> = HashMap::new();
    let mut gains = 0;
    loop {
        tokio::select! {
            // Who was stopped looks first what it believes, and then hears what has happened.
            biased;
            _ = terminated.recv() => break,
            _ = pace.tick() => {
                let believes: Vec<String> = has.iter().filter_map(|(index, held)| believes(worker, *index, held)).collect();
                if !believes.is_empty() {
                    let sql = format!("INSERT INTO beliefs VALUES {}", believes.join(", "));
                    notes.batch_execute(&sql).await.unwrap();
                }
            }
            event = shards.next() => match event.unwrap() {
                ShardEvent::Gained(shard) => {
                    gains += 1;
                    has.insert(shard.index(), (gains, shard));
                }
                ShardEvent::Lost(index) => drop(has.remove(&index)),
                other => panic!("{other:?}"),
            },
        }
    }
    drop(has);
    shards.leave().await;
    locks.close().await;
    println!("left");
}

/// A row that says that a shard is believed to be held, unless it is not.
fn believes(worker: &str, index: u32, (gain, shard): &(u32, Shard)) -> Option<String> {
    // Before it is looked, so that a stop between the two makes no belief later than it was.
    let at = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap();
    let at = at.as_nanos();
    shard.is_held().then(|| format!("('{worker}', {gain}, {index}, {at})"))
}
