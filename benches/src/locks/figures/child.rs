//! The other process that some figures need: this program, started again.

use std::time::{Duration, Instant};

use latchwork_core::{Guard, Key};
use latchwork_postgres::{Postgres, PostgresOptions};
use tokio::{task::JoinSet, time::sleep};

use super::{memory, turn};
use crate::{
    Failure,
    locks::{FIGURES_THREADS, connect},
    memory::resident,
    runtime,
};

/// The word that makes this program the other process.
pub(crate) const CHILD: &str = "locks-child";

/// How long a turn is waited for.
const LIMIT: Duration = Duration::from_secs(10);
/// Locks that are asked for at once, and before the memory is looked at for the first time.
const CHUNK: usize = 500;
const FIRST_KEY: i64 = 3_000_000;

/// Runs the other process.
pub(crate) fn child(words: impl Iterator<Item = String>) -> Result<(), Failure> {
    let words: Vec<String> = words.collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    match words[..] {
        ["turns", url, key] => runtime(FIGURES_THREADS)?.block_on(turns(url, Key::bigint(key.parse()?))),
        ["memory", url] => {
            let url = url.to_owned();
            runtime(FIGURES_THREADS)?.block_on(async { tokio::spawn(async move { hold_many(&url).await }).await? })
        }
        _ => Err("this is a part of the comparison: start that".into()),
    }
}

/// Prints how long each turn on the key was waited for, in microseconds.
async fn turns(url: &str, key: Key) -> Result<(), Failure> {
    let postgres = connect(url).await?;
    let locks = postgres.locks();
    for _ in 0..turn::TURNS {
        let asked = Instant::now();
        let guard = locks.acquire(key).within(LIMIT).await?;
        println!("{}", asked.elapsed().as_micros());
        drop(guard);
        // So that the next wait begins at some other moment of the others' turn.
        sleep(Duration::from_micros(fastrand::u64(5_000..30_000))).await;
    }
    locks.close().await;
    Ok(())
}

/// Prints by how much holding many locks has made the process grow.
async fn hold_many(url: &str) -> Result<(), Failure> {
    let options = PostgresOptions::default().with_max_locks(memory::LOCKS + CHUNK);
    let postgres = Postgres::connect(url.parse()?, options).await?;
    let mut guards = Vec::with_capacity(memory::LOCKS + CHUNK);
    hold(&postgres, &mut guards, CHUNK).await?;
    let before = resident()?;
    hold(&postgres, &mut guards, memory::LOCKS + CHUNK).await?;
    println!("bytes {}", resident()?.saturating_sub(before));
    drop(guards);
    postgres.locks().close().await;
    Ok(())
}

/// Acquires until so many are held.
async fn hold(postgres: &Postgres, guards: &mut Vec<Guard>, count: usize) -> Result<(), Failure> {
    let locks = postgres.locks();
    while guards.len() < count {
        let mut asked = JoinSet::new();
        for key in (FIRST_KEY + i64::try_from(guards.len())?..).take(CHUNK) {
            asked.spawn(locks.try_acquire(Key::bigint(key)));
        }
        while let Some(answer) = asked.join_next().await {
            guards.push(answer??.ok_or("a key that nobody else uses was not free")?);
        }
    }
    Ok(())
}
