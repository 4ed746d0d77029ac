//! Two hosts with the same crontab, whose lines they run at the same moment.

mod command;
mod crontab;
mod hosts;
mod journal;

use std::{
    env,
    ffi::OsStr,
    fs,
    process::{ExitCode, ExitStatus},
    thread,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use anyhow::{Context as _, ensure};
use latchwork_harness::Cluster;

use crate::{
    command::Latchwork,
    crontab::{Crontab, Line},
    hosts::{HOSTS, Host, Running},
    journal::Journal,
};

fn main() -> ExitCode {
    let arguments: Vec<_> = env::args_os().skip(1).collect();
    let played = match &arguments[..] {
        [] => play(include_str!("../crontab")),
        [file] => read(file).and_then(|text| play(&text)),
        _ => Err(anyhow::anyhow!("it takes no arguments, or a crontab of your own")),
    };
    match played {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error:#}");
            ExitCode::FAILURE
        }
    }
}

fn read(file: &OsStr) -> anyhow::Result<String> {
    fs::read_to_string(file).with_context(|| format!("{} can't be read", file.display()))
}

fn play(crontab: &str) -> anyhow::Result<()> {
    let Crontab { settings, lines } = &crontab.parse()?;
    let latchwork = Latchwork::build()?;
    for line in lines {
        line.check(settings, &latchwork)?;
    }
    println!("latchwork understands each of {} lines.", lines.len());
    let cluster = Cluster::start()?;
    latchwork.install_schema(&cluster.url())?;
    wait_for_a_young_minute();
    println!("Two hosts run all of them at the same moment:");
    let mut running = Vec::new();
    for line in lines {
        running.push(Running::start(line, settings, &latchwork, &cluster.url())?);
    }
    for (line, running) in lines.iter().zip(running) {
        let (journal, ended) = running.ended()?;
        tell(line, &journal, &ended)?;
    }
    println!("Each line ran once, or where it waits once on each host, and never on both at a time.");
    Ok(())
}

/// Says where a line has run; fails if it was not where it should be.
fn tell(line: &Line, journal: &Journal, ended: &[(Host, ExitStatus)]) -> anyhow::Result<()> {
    ensure!(
        !journal.is_ever_in_two_places(),
        "{line}\ntwo hosts at a time: {journal}"
    );
    let ran_on = journal.ran_on();
    let mut statuses = Vec::new();
    for (host, status) in ended {
        let ran_here = ran_on.contains(&&*host.to_string());
        let expected = if ran_here { 0 } else { BUSY };
        ensure!(
            status.code() == Some(expected),
            "{line}\n{host} has ended with {status}, and not with {expected}"
        );
        statuses.push(format!("{host} {expected}"));
    }
    let times = if line.waits() { HOSTS.len() } else { 1 };
    ensure!(ran_on.len() == times, "{line}\nnot {times} times: {journal}");
    println!("{line}");
    println!(
        "   ran on {}; exit statuses: {}",
        ran_on.join(", and then on "),
        statuses.join(", ")
    );
    Ok(())
}

/// Cron begins a line with the minute. At its end the second host might be in the next one, which is another tick.
fn wait_for_a_young_minute() {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let left = 60 - since.as_secs() % 60;
    if left <= 15 {
        println!("The next minute begins in {left} s.");
        thread::sleep(Duration::from_secs(left));
    }
}

/// What `latchwork run` ends with when others are at it, or have been.
const BUSY: i32 = 75;
