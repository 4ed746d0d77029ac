use latchwork_harness::find_program;

use crate::run::{Failure, cargo, run};
use crate::setup::install;

/// Runs one comparison with the package `benches`, in release mode.
pub(crate) fn bench(name: &str, arguments: &[String]) -> Result<(), Failure> {
    if find_program("redis-server").is_none()
        && let Err(failure) = install(&["redis-server"])
    {
        println!("xtask: NOTICE: the comparison runs without Redis: {failure}");
    }
    if name == "cli" {
        // What is measured is not a part of the package that measures.
        run(&mut cargo(&[
            "build",
            "--release",
            "--locked",
            "--package",
            "latchwork-cli",
        ]))?;
    }
    let mut benches = cargo(&["run", "--release", "--locked", "--package", "benches"]);
    // What the others need builds for minutes.
    benches.args(["--no-default-features", "--features", features(name)]);
    run(benches.args(["--", name]).args(arguments))
}

fn features(comparison: &str) -> &'static str {
    match comparison {
        "orm" => "libraries",
        "locks" | "http" => "peers",
        _ => "",
    }
}
