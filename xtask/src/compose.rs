//! The compose file against the schema of compose files.

use std::path::PathBuf;
use std::process::Command;

use latchwork_harness::find_program;

use crate::run::{Failure, output, root, run, target, works};
use crate::setup::install;

/// It carries the schema with it, so that the check needs no network.
const CHECKER: &str = "check-jsonschema";
const REQUIREMENT: &str = "check-jsonschema==0.39.0";

pub(crate) fn check() -> Result<(), Failure> {
    let checker = match find_program(CHECKER) {
        Some(program) if works(Command::new(&program).arg("--version")) => program,
        _ => in_venv()?,
    };
    run(Command::new(checker)
        .args(["--builtin-schema", "vendor.compose-spec", "docker-compose.yml"])
        .current_dir(root()))
}

/// The checker in a Python environment of ours, made now if it is not there.
fn in_venv() -> Result<PathBuf, Failure> {
    let venv = target().join("lint-venv");
    let checker = venv.join("bin").join(CHECKER);
    if works(Command::new(&checker).arg("--version")) {
        return Ok(checker);
    }
    if !works(Command::new("python3").args(["-c", "import venv, ensurepip"])) {
        install(&["python3-venv"])?;
    }
    println!("xtask: installing {REQUIREMENT} in target/lint-venv");
    output(Command::new("python3").args(["-m", "venv", "--clear"]).arg(&venv))?;
    output(Command::new(venv.join("bin/pip")).args(["install", "--quiet", REQUIREMENT]))?;
    Ok(checker)
}
