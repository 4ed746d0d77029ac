//! The command: how long `latchwork run` takes around a program that does nothing, beside psql with one query.

use std::{
    env,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    time::Instant,
};

use latchwork_harness::{Cluster, Installation};
use serde_json::json;

use crate::{
    Failure,
    arguments::Arguments,
    report::{Goal, Report},
    statistics::{median, nanos, quantile},
};

/// How often each is run in a round.
const RUNS: usize = 40;
const NAME: &str = "nightly-report";

/// Measures everything that is wanted.
pub(crate) fn compare(arguments: &Arguments) -> Result<(), Failure> {
    let cluster = Cluster::start()?;
    let mut report = Report::new("cli");
    let server = cluster.psql("SHOW server_version")?;
    let runs = RUNS * arguments.rounds;
    println!("PostgreSQL {server}, fsync off, over its unix socket; {runs} runs of each, in turn");
    report.fact("postgresql", server);
    report.fact("runs", runs);
    let (latchwork, psql) = (latchwork()?, psql()?);
    let commands: [(&str, Vec<&str>, &Path); 3] = [
        (
            "latchwork run --try",
            vec!["run", "--try", NAME, "--", "true"],
            &latchwork,
        ),
        ("psql -c 'select 1'", vec!["-X", "-c", "select 1"], &psql),
        ("latchwork --version", vec!["--version"], &latchwork),
    ];
    let mut times = vec![Vec::new(); commands.len()];
    // In turn, so that whatever else the machine does comes to all of them.
    for _ in 0..runs {
        for ((_, words, program), times) in commands.iter().zip(&mut times) {
            times.push(time(program, words, &cluster)?);
        }
    }
    let mut medians = Vec::new();
    for ((name, ..), mut times) in commands.into_iter().zip(times) {
        times.sort_unstable();
        let milliseconds = |nanos: u64| nanos as f64 / 1e6;
        let middle = median(times.iter().copied().map(milliseconds).collect());
        let late = milliseconds(quantile(&times, 0.99));
        println!("{name:<32}{middle:>10.2} ms median{late:>10.2} ms for 99 of 100");
        report.row(json!({ "command": name, "median_ms": middle, "p99_ms": late }));
        medians.push(middle);
    }
    report.figure("run_vs_psql", medians[0] / medians[1], Goal::AtMost(1.5));
    match &arguments.json {
        Some(path) => report.write(path),
        None => Ok(()),
    }
}

/// From the start of a program to its end, which is to be a good one.
fn time(program: &Path, words: &[&str], cluster: &Cluster) -> Result<u64, Failure> {
    let mut command = Command::new(program);
    // The one has the database from here, the other from what libpq has; no other settings.
    for (name, _) in env::vars_os() {
        let name_text = name.to_string_lossy();
        if name_text.starts_with("PG") || name_text.starts_with("LATCHWORK") {
            command.env_remove(name);
        }
    }
    let url = cluster.url();
    command
        .args(words)
        .env("DATABASE_URL", &url)
        .stdin(Stdio::null())
        .stdout(Stdio::null());
    if program.ends_with("psql") {
        command.args(["-d", &url]);
    }
    let begun = Instant::now();
    let status = command.status()?;
    let time = nanos(begun.elapsed());
    if status.success() {
        Ok(time)
    } else {
        Err(format!("{}: {status}", program.display()).into())
    }
}

/// The command, which lies beside this program.
fn latchwork() -> Result<PathBuf, Failure> {
    let program = env::current_exe()?.with_file_name("latchwork");
    if program.is_file() {
        Ok(program)
    } else {
        Err("there is no `latchwork` beside this program: `cargo xtask bench cli` builds both".into())
    }
}

/// The program itself: what Debian has in the PATH is a script that looks for one first.
fn psql() -> Result<PathBuf, Failure> {
    let programs = Installation::all()
        .into_iter()
        .map(|installation| installation.bindir().join("psql"));
    let mut there = programs.filter(|program| program.is_file());
    there
        .next()
        .ok_or_else(|| "there is no psql: install postgresql-client".into())
}
