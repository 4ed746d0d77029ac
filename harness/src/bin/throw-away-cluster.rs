//! Runs a throw-away cluster until its standard input ends, or until Ctrl-C.
//!
//! The tests of the harness end it in worse ways: an argument says how.

use std::error::Error;
use std::io;
use std::process::{Command, ExitCode, abort, exit};

use latchwork_harness::{Cluster, Process};

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            let mut cause: Option<&dyn Error> = Some(error.as_ref());
            while let Some(error) = cause {
                eprintln!("{error}");
                cause = error.source();
            }
            ExitCode::FAILURE
        }
    }
}

fn run() -> Result<(), Box<dyn Error>> {
    let cluster = Cluster::start()?;
    println!("url {}", cluster.url());
    println!("folder {}", cluster.host());
    println!("postmaster {}", cluster.postmaster_pid()?);
    match std::env::args().nth(1).as_deref() {
        Some("exit") => exit(0),
        Some("abort") => abort(),
        Some("panic") => panic!("a panic that was asked for"),
        Some("with-child") => {
            let child = Process::spawn(Command::new("sleep").arg("600"))?;
            println!("child {}", child.id());
            wait_for_end()?;
        }
        _ => wait_for_end()?,
    }
    Ok(())
}

fn wait_for_end() -> io::Result<()> {
    io::copy(&mut io::stdin(), &mut io::sink()).map(drop)
}
