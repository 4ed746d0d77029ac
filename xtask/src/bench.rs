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
    run(cargo(&["run", "--release", "--locked", "--package", "benches", "--", name]).args(arguments))
}
