//! The `latchwork` command: a thin shell over the library, one file for each verb in `commands`.

mod args;
mod child;
mod commands;
mod connection;
mod failure;
mod measure;
mod name;
mod names;
mod output;
mod signals;
mod terminal;
mod tool;
mod tree;
mod watchdog;

use std::process::ExitCode;

use clap::Parser as _;
use tokio::runtime::Builder;

use crate::{args::Cli, failure::Failure, watchdog::Part};

fn main() -> ExitCode {
    let mut arguments = std::env::args_os().skip(1);
    // Not for people, and in a hurry.
    if let Some(part) = arguments.next().as_ref().and_then(Part::of) {
        return part.play(arguments).into();
    }
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => return args::refused(error),
    };
    // One thread: a command waits for one thing at a time, and has to begin quickly.
    let ended = match Builder::new_current_thread().enable_all().build() {
        Ok(runtime) => runtime.block_on(commands::perform(cli)),
        Err(error) => Err(Failure::from(error)),
    };
    match ended {
        Ok(status) => status.into(),
        Err(failure) => failure.report().into(),
    }
}
