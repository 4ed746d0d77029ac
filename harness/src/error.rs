use std::io;
use std::path::{Path, PathBuf};

/// Says why something could not be started or driven, and what to do about it.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum HarnessError {
    /// No PostgreSQL server binaries were found.
    #[error(
        "no PostgreSQL server found on PATH, by pg_config or in /usr/lib/postgresql: \
         install one (`apt-get install postgresql` on Debian) or set LATCHWORK_POSTGRES_DIR"
    )]
    NoInstallation,
    /// The wanted PostgreSQL major is not there.
    #[error("PostgreSQL {major} is not installed (found: {found}): run `cargo xtask setup` to fetch it")]
    NoSuchMajor {
        /// The major that was asked for.
        major: u32,
        /// The majors that are there, as a list for people.
        found: String,
    },
    /// `LATCHWORK_POSTGRES_MAJOR` holds something else than a number.
    #[error("LATCHWORK_POSTGRES_MAJOR is {value:?}: set it to a PostgreSQL major such as 15, or unset it")]
    BadMajor {
        /// What the variable holds.
        value: String,
    },
    /// A program that the harness runs is not installed.
    #[error("{program} is not installed: `apt-get install {package}` on Debian, or `cargo xtask setup`")]
    MissingProgram {
        /// The program's name.
        program: &'static str,
        /// The Debian package that ships it.
        package: &'static str,
    },
    /// The process runs as root and no unprivileged user is there to run a server as.
    #[error("servers do not run as root, and neither the user postgres nor nobody exists: create one of them")]
    NoServerUser,
    /// No temporary folder is short enough for a socket path and open to the server's user.
    #[error("no usable temporary folder among {tried}: set TMPDIR to a short path that every user may write to")]
    NoTemporaryFolder {
        /// The folders that were looked at.
        tried: String,
    },
    /// The operating system refused something.
    #[error("cannot {action}")]
    Io {
        /// What was tried.
        action: String,
        /// The system's answer.
        #[source]
        source: io::Error,
    },
    /// A program ended with a failure.
    #[error("{program} failed ({status}): {output}")]
    Failed {
        /// The program.
        program: String,
        /// How it ended.
        status: String,
        /// What it printed.
        output: String,
    },
    /// A server ended while it was starting.
    #[error("{server} ended while starting ({status}); its log ends: {log}")]
    StartFailed {
        /// The server.
        server: &'static str,
        /// How it ended.
        status: String,
        /// The last lines of its log.
        log: String,
    },
    /// Something did not happen in time.
    #[error("{what} took longer than {seconds} s; the log ends: {log}")]
    TimedOut {
        /// What was waited for.
        what: String,
        /// The limit.
        seconds: u64,
        /// The last lines of the server's log.
        log: String,
    },
    /// The server is not running.
    #[error("the server is stopped: call restart() first")]
    Stopped,
    /// A signal was meant for a process that is no child of this server.
    #[error("process {pid} is no backend of this cluster")]
    NotABackend {
        /// The process.
        pid: i32,
    },
}

impl HarnessError {
    /// Turns an I/O error into one that says what was tried.
    pub(crate) fn io(action: impl Into<String>) -> impl FnOnce(io::Error) -> Self {
        let action = action.into();
        move |source| Self::Io { action, source }
    }

    /// The same for an action on one path.
    pub(crate) fn path(verb: &str, path: &Path) -> impl FnOnce(io::Error) -> Self + use<> {
        Self::io(format!("{verb} {}", path.display()))
    }
}

/// The last lines of a log, for an error message.
pub(crate) fn log_tail(log: &str) -> String {
    const LINES: usize = 12;
    let lines: Vec<&str> = log.lines().collect();
    let tail = &lines[lines.len().saturating_sub(LINES)..];
    if tail.is_empty() {
        "(empty)".to_owned()
    } else {
        tail.join("\n")
    }
}

/// A list of folders, for an error message.
pub(crate) fn list_paths(paths: &[PathBuf]) -> String {
    let paths: Vec<String> = paths.iter().map(|path| path.display().to_string()).collect();
    paths.join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn log_tail_keeps_only_the_last_lines() {
        let log: String = (0..100).map(|line| format!("{line}\n")).collect();
        let tail = log_tail(&log);
        assert!(tail.starts_with("88\n"), "{tail}");
        assert!(tail.ends_with("\n99"), "{tail}");
        assert_eq!(log_tail(""), "(empty)");
    }
}
