//! While two tasks of this process hand a key to each other without pause, another process waits for its turn.

use std::env;
use std::process::Command;

use latchwork_core::Key;
use latchwork_harness::Process;
use latchwork_postgres::Postgres;
use tokio::task::spawn_blocking;

use super::{
    child::CHILD,
    hand_over::{OurBaton, Players},
};
use crate::{
    Failure,
    report::{Goal, Report},
    statistics::{median, quantile},
};

pub(crate) const TURNS: usize = 60;
const KEY: i64 = 2_000_002;

pub(crate) async fn measure(url: &str, postgres: &Postgres, report: &mut Report) -> Result<(), Failure> {
    let baton = OurBaton {
        locks: postgres.locks(),
        key: Key::bigint(KEY),
    };
    let players = Players::start(&baton, true);
    let url = url.to_owned();
    let waits = spawn_blocking(move || waits_of_child(&url)).await?;
    let speed = players.stop().await?;
    let mut micros = waits?;
    if micros.len() != TURNS {
        return Err(format!("the other process had {} turns instead of {TURNS}", micros.len()).into());
    }
    micros.sort_unstable();
    report.note(format!(
        "another process has waited for {TURNS} turns, {:.1} ms at the 90th percentile and {:.1} ms at most, beside {:.0} \
         hand-overs/s",
        quantile(&micros, 0.9) as f64 / 1_000.0,
        quantile(&micros, 1.0) as f64 / 1_000.0,
        speed.hand_overs,
    ));
    let millis = median(micros.iter().map(|micros| *micros as f64 / 1_000.0).collect());
    report.figure("turn_ms", millis, Goal::AtMost(50.0));
    Ok(())
}

/// Each line of the child is a wait in microseconds.
fn waits_of_child(url: &str) -> Result<Vec<u64>, Failure> {
    let mut child = Process::spawn(Command::new(env::current_exe()?).args([CHILD, "turns", url, &KEY.to_string()]))?;
    let mut waits = Vec::with_capacity(TURNS);
    while let Some(line) = child.next_line()? {
        waits.push(line.parse()?);
    }
    let status = child.wait()?;
    if status.success() {
        Ok(waits)
    } else {
        Err(format!("the other process has ended: {status}").into())
    }
}
