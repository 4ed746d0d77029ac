//! A process of its own with one engine, for tests that kill or stop it. It does what its standard input says, a word a
//! line, and answers on its standard output.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on must fail, helpers included")]

mod work;

use std::io::BufRead;
use std::time::Duration;

use latchwork_core::{Guard, Locks, fence::FencedGuard};
use latchwork_postgres::{Config, Postgres, PostgresOptions, Timing};
use tokio::sync::mpsc;

use self::work::Work;

#[tokio::main]
async fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let config = match arguments.first() {
        Some(url) => url.parse::<Config>(),
        None => Config::from_env(),
    };
    let config = match config {
        Ok(config) => config,
        Err(error) => {
            println!("refused {error} / {error:?}");
            return;
        }
    };
    let limits = arguments
        .iter()
        .skip(1)
        .map(|limit| Duration::from_millis(limit.parse().unwrap()));
    let mut options = PostgresOptions::default();
    if let [ping_interval, ping_limit] = limits.collect::<Vec<_>>()[..] {
        options = options.with_timing(Timing::new(ping_interval, ping_limit));
    }
    let postgres = Postgres::connect(config, options).await.unwrap();
    println!("ready");
    obey(&postgres.locks(), &mut commands()).await;
}

/// The lines of standard input. A thread of its own reads them, since reading blocks.
fn commands() -> mpsc::UnboundedReceiver<String> {
    let (sender, receiver) = mpsc::unbounded_channel();
    std::thread::spawn(move || {
        for line in std::io::stdin().lock().lines().map_while(Result::ok) {
            if sender.send(line).is_err() {
                break;
            }
        }
    });
    receiver
}

async fn obey(locks: &Locks, commands: &mut mpsc::UnboundedReceiver<String>) {
    let mut guards: Vec<Guard> = Vec::new();
    let mut fenced: Option<FencedGuard> = None;
    let mut work: Option<Work> = None;
    while let Some(command) = commands.recv().await {
        match command.split_once(' ').unwrap_or((&command, "")) {
            ("acquire", key) => {
                let guard = locks.acquire(key).without_limit().await.unwrap();
                let lost = guard.lost();
                tokio::spawn(async move {
                    lost.await;
                    println!("lost");
                });
                guards.push(guard);
                println!("acquired");
            }
            ("try", key) => {
                let guard = locks.try_acquire(key).await;
                println!("tried {}", matches!(guard, Ok(Some(_))));
                guards.extend(guard.ok().flatten());
            }
            ("held", _) => println!("held {}", guards.iter().all(Guard::is_held)),
            ("release", _) => {
                for guard in guards.drain(..) {
                    println!("released {}", guard.release().await.is_ok());
                }
            }
            ("fence", key) => {
                fenced = Some(locks.acquire_fenced(key).without_limit().await.unwrap());
                println!("fenced");
            }
            ("fence-shared", key) => {
                fenced = Some(locks.acquire_fenced(key).shared().without_limit().await.unwrap());
                println!("fenced");
            }
            // Whatever has become of the lock meanwhile.
            ("work", url) => {
                let fence = fenced.as_ref().unwrap().fence();
                work = Some(Work::connect(url, fence).await);
                println!("connected");
            }
            ("begin" | "prove" | "commit", _) => work.as_ref().unwrap().tell(&command),
            _ => panic!("what is {command:?}?"),
        }
    }
}
