//! Two instances of one service, one PostgreSQL, and what its locks keep apart.
//!
//! `service.rs` is the service; all else starts it, sends it requests, and checks the answers.

mod account;
mod args;
mod checks;
mod client;
mod database;
mod failure;
mod instance;
mod pair;
mod serve;
mod service;
mod stop;
mod tour;
mod work;

use std::env;
use std::process::ExitCode;
use std::time::Duration;

use tracing_subscriber::filter::Targets;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;

use crate::account::{note, print};
use crate::args::Command;
use crate::database::Database;
use crate::failure::Failure;
use crate::instance::Setting;
use crate::pair::Pair;
use crate::stop::Stop;

fn main() -> ExitCode {
    let command = match args::parse(env::args_os().skip(1)) {
        Ok(command) => command,
        Err(mistake) => {
            note(&format!("quickstart: {mistake}; see --help"));
            return ExitCode::from(2);
        }
    };
    match execute(command) {
        Ok(code) => code,
        Err(failure) => {
            note(&format!("quickstart: {failure}"));
            ExitCode::from(failure.exit_status())
        }
    }
}

fn execute(command: Command) -> Result<ExitCode, Failure> {
    log_if_asked();
    let runtime = tokio::runtime::Runtime::new()?;
    match command {
        Command::Help => {
            print(args::HELP);
            Ok(ExitCode::SUCCESS)
        }
        Command::Instance { name, port, namespace } => {
            runtime.block_on(instance::run(name, Setting { port, namespace }))?;
            Ok(ExitCode::SUCCESS)
        }
        Command::Run { serve, memory, port } => {
            let end = runtime.block_on(run(serve, memory, port));
            // A signal may have come while something was being started. What takes longer ends with this process.
            runtime.shutdown_timeout(Duration::from_secs(3));
            end
        }
    }
}

/// Does what was asked for, or what was done so far when a signal ends it; nothing is left of it either way.
async fn run(serve: bool, memory: bool, port: Option<u16>) -> Result<ExitCode, Failure> {
    let mut stop = Stop::listen()?;
    let work = async {
        let database = Database::find(memory).await?;
        let mut pair = Pair::start(database, port).await?;
        if serve {
            serve::serve(&mut pair).await?;
            return Ok(true);
        }
        tour::tour(&mut pair).await
    };
    tokio::select! {
        held = work => Ok(if held? { ExitCode::SUCCESS } else { ExitCode::FAILURE }),
        signal = stop.asked() => {
            note(&format!("quickstart: ended by signal {signal}"));
            Ok(if serve { ExitCode::SUCCESS } else { ExitCode::from(128 + signal) })
        }
    }
}

/// Shows what the library logs, on standard error, as far as RUST_LOG asks for it.
fn log_if_asked() {
    let Ok(wanted) = env::var("RUST_LOG") else {
        return;
    };
    match wanted.parse::<Targets>() {
        Ok(targets) => {
            let lines = tracing_subscriber::fmt::layer().with_writer(std::io::stderr);
            tracing_subscriber::registry().with(lines).with(targets).init();
        }
        // It may be meant for other programs, which understand more.
        Err(error) => note(&format!(
            "quickstart: RUST_LOG is not understood, so nothing is logged: {error}"
        )),
    }
}
