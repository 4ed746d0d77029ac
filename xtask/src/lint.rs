use crate::run::{Failure, cargo, run, works};
use crate::{compose, hygiene};

/// Checks everything that needs no test run.
pub(crate) fn lint() -> Result<(), Failure> {
    run(&mut cargo(&["fmt", "--all", "--check"]))?;
    hygiene::check()?;
    compose::check()?;
    for features in [None, Some("--no-default-features"), Some("--all-features")] {
        let mut clippy = cargo(&["clippy", "--workspace", "--all-targets", "--locked"]);
        run(clippy.args(features).args(["--", "-D", "warnings"]))?;
    }
    if works(&mut cargo(&["deny", "--version"])) {
        run(&mut cargo(&[
            "deny",
            "--all-features",
            "check",
            "bans",
            "licenses",
            "sources",
        ]))?;
    } else {
        println!("xtask: NOTICE: cargo-deny is not installed, so deny.toml is not checked");
    }
    Ok(())
}
