//! Comparisons of latchwork with its peers: one subcommand a comparison, a table on standard output, and with
//! `--json FILE` the same as JSON, with a flat map `figures`.

mod arguments;
mod cli;
mod connection;
mod http;
mod leader;
mod locks;
mod memory;
#[cfg(feature = "libraries")]
mod orm;
mod report;
mod statistics;

use std::{env, error::Error, process::ExitCode};

use tokio::runtime::{Builder, Runtime};

use arguments::Arguments;

/// What ends a comparison early.
pub(crate) type Failure = Box<dyn Error + Send + Sync>;

const USAGE: &str = "\
usage: benches COMPARISON [--json FILE] [--only NAME,..] [--tasks N,..] [--threads N,..] [--rounds N] [--millis N]

  cli      `latchwork run` around a program that does nothing, and psql with one query
  http     requests to an axum service: with our layers, with its peers' and with none
  leader   how soon the next leader works, and what a follower costs
  locks    acquire and release: latchwork, its peers, and what the server alone can do
  orm      locked transactions of the database libraries: ours, with SELECT FOR UPDATE, and without a lock

  --only     the named contenders and figures alone, for a quick look
  --tasks    how many tasks work at once (1,16,64,512); of http, always 64 connections; of orm, 16 tasks
  --threads  worker threads of the client (1,2); the figures take each contender where it is fastest
  --rounds   how often each contender has its turn (5); of cli, 40 runs each
  --millis   how long a turn is (300)";

fn main() -> ExitCode {
    match dispatch(env::args().skip(1).collect()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            let mut cause: Option<&dyn Error> = Some(failure.as_ref());
            while let Some(error) = cause {
                eprintln!("{error}");
                cause = error.source();
            }
            ExitCode::FAILURE
        }
    }
}

fn dispatch(words: Vec<String>) -> Result<(), Failure> {
    let mut words = words.into_iter();
    match words.next().as_deref() {
        Some("cli") => cli::compare(&Arguments::parse(words)?),
        Some("http") => http::compare(&Arguments::parse(words)?),
        Some("leader") => leader::compare(&Arguments::parse(words)?),
        Some(leader::CHILD) => leader::child(words),
        Some("locks") => locks::compare(&Arguments::parse(words)?),
        #[cfg(feature = "libraries")]
        Some("orm") => orm::compare(&Arguments::parse(words)?),
        Some(locks::CHILD) => locks::child(words),
        _ => Err(USAGE.into()),
    }
}

/// A runtime to measure on.
pub(crate) fn runtime(threads: usize) -> Result<Runtime, Failure> {
    Ok(Builder::new_multi_thread()
        .worker_threads(threads)
        .enable_all()
        .build()?)
}
