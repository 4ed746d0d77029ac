use crate::run::{Failure, cargo, run, works};
use crate::setup::setup;

/// Runs every test of the workspace, then the examples in the documentation.
pub(crate) fn test(arguments: &[String]) -> Result<(), Failure> {
    setup()?;
    let mut tests = if works(&mut cargo(&["nextest", "--version"])) {
        cargo(&["nextest", "run", "--workspace", "--all-features", "--locked"])
    } else {
        cargo(&[
            "test",
            "--workspace",
            "--all-features",
            "--locked",
            "--lib",
            "--bins",
            "--tests",
        ])
    };
    run(tests.args(arguments))?;
    if arguments.is_empty() {
        run(&mut cargo(&[
            "test",
            "--doc",
            "--workspace",
            "--all-features",
            "--locked",
        ]))?;
    }
    Ok(())
}
