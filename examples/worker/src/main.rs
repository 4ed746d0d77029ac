//! Three workers: one leads, all share the shards, and one of them reports each second; then the leader is killed.

mod books;
mod dispatch;
mod report;
mod shares;
mod ship;
mod show;
mod worker;

use std::{env, process::ExitCode};

fn main() -> ExitCode {
    let arguments: Vec<String> = env::args().skip(1).collect();
    let ended = match arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        [] => show::show(),
        [name, url] => worker::work(name, url),
        _ => Err(anyhow::anyhow!(
            "it takes no arguments, or the name of a worker and a URL"
        )),
    };
    match ended {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error:#}");
            ExitCode::FAILURE
        }
    }
}
