//! A process that campaigns, for tests that kill or stop it: tells each transition on its standard output, and each line of
//! work. It resigns and ends at SIGTERM.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on must fail, helpers included")]

use std::time::Duration;

use latchwork_core::leader::{Candidate, Transition};
use latchwork_postgres::{Config, Postgres, PostgresOptions, Timing};
use tokio::{
    signal::unix::{SignalKind, signal},
    time::sleep,
};

/// How often a leader works.
const PACE: Duration = Duration::from_millis(20);

#[tokio::main]
async fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [url, name, ping_interval, ping_limit] = &arguments[..] else {
        panic!("usage: candidate URL NAME PING_INTERVAL PING_LIMIT, both in milliseconds");
    };
    let milliseconds = |text: &str| Duration::from_millis(text.parse().unwrap());
    let timing = Timing::new(milliseconds(ping_interval), milliseconds(ping_limit));
    let options = PostgresOptions::default().with_timing(timing);
    let postgres = Postgres::connect(url.parse::<Config>().unwrap(), options)
        .await
        .unwrap();
    let candidate = postgres.locks().leader(name.as_str()).campaign().unwrap();
    tokio::spawn(tell(candidate.clone()));
    let mut terminated = signal(SignalKind::terminate()).unwrap();
    let stops = candidate.clone();
    tokio::spawn(async move {
        terminated.recv().await;
        stops.shutdown().await;
    });
    work(&candidate).await;
    println!("returned");
    candidate.shutdown().await;
    println!("ended");
}

async fn tell(candidate: Candidate) {
    let mut transitions = candidate.transitions();
    while let Some(Transition::To(state)) = transitions.next().await {
        println!("is {state}");
    }
}

async fn work(candidate: &Candidate) {
    let work = |leading: latchwork_core::leader::Leading, cancel: latchwork_core::leader::CancellationToken| async move {
        while !cancel.is_cancelled() {
            if leading.confirmed().await.is_ok() {
                println!("works {}", leading.term());
            }
            sleep(PACE).await;
        }
    };
    candidate.run(work).await;
}
