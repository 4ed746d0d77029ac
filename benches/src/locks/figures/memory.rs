//! What a held lock costs its process in memory.
//!
//! Counting in the allocator would take `unsafe`, so a fresh process tells its resident memory before and after it
//! takes many locks: guards, gate, sessions, and what the allocator does not use, all of it.

use std::{env, process::Command};

use latchwork_harness::Process;
use tokio::task::spawn_blocking;

use super::child::CHILD;
use crate::{
    Failure,
    report::{Goal, Report},
};

/// How many locks are held.
pub(crate) const LOCKS: usize = 50_000;

pub(crate) async fn measure(url: &str, report: &mut Report) -> Result<(), Failure> {
    let url = url.to_owned();
    let bytes: u64 = spawn_blocking(move || {
        let mut child = Process::spawn(Command::new(env::current_exe()?).args([CHILD, "memory", &url]))?;
        Ok::<_, Failure>(child.wait_for_line("bytes ")?.parse()?)
    })
    .await??;
    let mib = bytes as f64 / f64::from(1 << 20);
    report.note(format!("{LOCKS} locks held: the process has grown by {mib:.1} MiB"));
    report.figure("bytes_per_held", bytes as f64 / LOCKS as f64, Goal::AtMost(500.0));
    Ok(())
}
