//! The verbs that people and CI run: `cargo xtask VERB`.

mod bench;
mod compose;
mod docs;
mod hygiene;
mod lint;
mod majors;
mod run;
mod setup;
mod test;

use std::env;
use std::process::ExitCode;
use std::time::Instant;

use run::Failure;

const USAGE: &str = "\
usage: cargo xtask VERB

  setup             install what the tests need and lack, and fetch PostgreSQL's oldest and newest majors
  test [ARGS]       setup, then all tests; ARGS go to the runner, and then the doctests are left out
  lint              format, clippy with default, no and all features, compose file, tracked files
  docs              documentation with warnings denied, private items included
  bench NAME [..]   one comparison of the benches package; --json FILE writes its figures
  ci                setup, lint, test, docs";

fn main() -> ExitCode {
    let arguments: Vec<String> = env::args().skip(1).collect();
    match dispatch(&arguments) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            eprintln!("xtask: {failure}");
            ExitCode::from(failure.exit_code())
        }
    }
}

fn dispatch(arguments: &[String]) -> Result<(), Failure> {
    let (verb, rest) = arguments.split_first().ok_or_else(|| Failure::usage(USAGE))?;
    match (verb.as_str(), rest) {
        ("setup", []) => setup::setup(),
        ("test", _) => test::test(rest),
        ("lint", []) => lint::lint(),
        ("docs", []) => docs::docs(),
        ("bench", [name, rest @ ..]) => bench::bench(name, rest),
        ("ci", []) => ci(),
        _ => Err(Failure::usage(USAGE)),
    }
}

/// One step after the other, so that the first thing that is wrong is the last thing printed.
fn ci() -> Result<(), Failure> {
    let start = Instant::now();
    timed("setup", setup::setup)?;
    timed("lint", lint::lint)?;
    timed("test", || test::test(&[]))?;
    timed("docs", docs::docs)?;
    println!("xtask: ci passed in {:.0} s", start.elapsed().as_secs_f64());
    Ok(())
}

fn timed(name: &str, step: impl FnOnce() -> Result<(), Failure>) -> Result<(), Failure> {
    let start = Instant::now();
    let outcome = step();
    let word = if outcome.is_ok() { "passed" } else { "FAILED" };
    println!("xtask: {name} {word} in {:.1} s", start.elapsed().as_secs_f64());
    outcome
}
