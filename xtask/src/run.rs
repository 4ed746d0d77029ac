//! Running programs so that everybody sees what runs.

use std::env;
use std::ffi::OsString;
use std::fmt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Why a verb did not come to its end.
#[derive(Debug)]
pub(crate) enum Failure {
    /// A step failed, or something went wrong while it ran.
    Step(String),
    /// Nothing was tried: the machine or the command line is not as it must be.
    NotReady(String),
}

impl Failure {
    pub(crate) fn step(message: impl Into<String>) -> Self {
        Self::Step(message.into())
    }

    pub(crate) fn usage(message: impl Into<String>) -> Self {
        Self::NotReady(message.into())
    }

    pub(crate) fn exit_code(&self) -> u8 {
        match self {
            Self::Step(_) => 1,
            Self::NotReady(_) => 2,
        }
    }

    /// Says what was tried when the system refused.
    pub(crate) fn io(action: impl fmt::Display) -> impl FnOnce(std::io::Error) -> Self {
        move |error| Self::Step(format!("cannot {action}: {error}"))
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Step(message) | Self::NotReady(message) => f.write_str(message),
        }
    }
}

/// The folder of the workspace.
pub(crate) fn root() -> PathBuf {
    let package = env::var_os("CARGO_MANIFEST_DIR").unwrap_or_else(|| env!("CARGO_MANIFEST_DIR").into());
    Path::new(&package)
        .parent()
        .map_or_else(|| PathBuf::from("."), Path::to_owned)
}

/// The folder of build output.
pub(crate) fn target() -> PathBuf {
    env::var_os("CARGO_TARGET_DIR").map_or_else(|| root().join("target"), |folder| root().join(folder))
}

/// Cargo in the workspace, without what the cargo that runs us has set for this package alone.
pub(crate) fn cargo(arguments: &[&str]) -> Command {
    let mut command = Command::new(env::var_os("CARGO").unwrap_or_else(|| OsString::from("cargo")));
    command.args(arguments).current_dir(root());
    for (name, _) in env::vars_os() {
        let of_this_package = ["CARGO_PKG_", "CARGO_MANIFEST_", "CARGO_BIN_", "CARGO_CRATE_"];
        if of_this_package
            .iter()
            .any(|prefix| name.to_string_lossy().starts_with(prefix))
        {
            command.env_remove(name);
        }
    }
    command
}

/// Prints the command, runs it with our own output, and fails when it does.
pub(crate) fn run(command: &mut Command) -> Result<(), Failure> {
    let line = describe(command);
    println!("xtask: {line}");
    let status = command.status().map_err(Failure::io(format!("run {line}")))?;
    if status.success() {
        Ok(())
    } else {
        Err(Failure::step(format!("failed ({status}): {line}")))
    }
}

/// Runs a command quietly and returns what it prints.
pub(crate) fn output(command: &mut Command) -> Result<String, Failure> {
    let line = describe(command);
    let output = command
        .stdin(Stdio::null())
        .output()
        .map_err(Failure::io(format!("run {line}")))?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    // Some programs print their whole stack after the reason.
    const LINES: usize = 4;
    let errors: Vec<String> = String::from_utf8_lossy(&output.stderr)
        .lines()
        .take(LINES)
        .map(str::to_owned)
        .collect();
    let errors = errors.join("\n");
    Err(Failure::step(format!("failed ({}): {line}\n{errors}", output.status)))
}

/// Whether a command can be run and succeeds.
pub(crate) fn works(command: &mut Command) -> bool {
    command
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status()
        .is_ok_and(|it| it.success())
}

fn describe(command: &Command) -> String {
    let program = Path::new(command.get_program());
    let name = program
        .file_name()
        .unwrap_or_else(|| command.get_program())
        .to_string_lossy()
        .into_owned();
    command
        .get_args()
        .fold(name, |line, argument| format!("{line} {}", argument.to_string_lossy()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failing_command_is_named_with_its_status() {
        let failure = run(Command::new("/bin/sh").args(["-c", "exit 3"])).unwrap_err();
        assert_eq!(failure.to_string(), "failed (exit status: 3): sh -c exit 3");
        assert_eq!(failure.exit_code(), 1);
    }

    #[test]
    fn a_missing_program_is_named() {
        let failure = output(&mut Command::new("no-such-program-here")).unwrap_err();
        assert!(
            failure.to_string().starts_with("cannot run no-such-program-here: "),
            "{failure}"
        );
        assert!(!works(&mut Command::new("no-such-program-here")));
    }
}
