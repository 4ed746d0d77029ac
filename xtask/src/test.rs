use crate::run::{Failure, cargo, run, works};
use crate::setup::setup;

/// Runs every test of the workspace, then the examples in the documentation.
pub(crate) fn test(arguments: &[String]) -> Result<(), Failure> {
    setup()?;
    let mut tests = if works(&mut cargo(&["nextest", "--version"])) {
        cargo(&["nextest", "run"])
    } else {
        // Unit and integration tests; the doctests come after them.
        cargo(&["test", "--tests"])
    };
    tests.args(["--all-features", "--locked"]);
    if !arguments
        .iter()
        .any(|it| it.starts_with("-p") || it.starts_with("--package"))
    {
        tests.arg("--workspace");
    }
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
