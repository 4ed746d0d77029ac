//! The hosts, and how their cron daemons run a line.

use std::{
    fmt,
    io::{self, PipeReader, pipe},
    process::{Child, Command, ExitStatus, Stdio},
};

use crate::{
    command::Latchwork,
    crontab::{Line, Settings},
    journal::Journal,
};

/// A host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Host {
    A,
    B,
}

pub(crate) const HOSTS: [Host; 2] = [Host::A, Host::B];

/// A line that runs on all hosts.
#[derive(Debug)]
pub(crate) struct Running {
    said: PipeReader,
    on: Vec<(Host, Child)>,
}

impl Host {
    /// A line's command as cron starts it: by the shell, at home, with little in its environment. This program says what is
    /// different here: where the database is, and the command.
    pub(crate) fn command(self, line: &Line, settings: &Settings, latchwork: &Latchwork, url: &str) -> Command {
        let home = env!("CARGO_MANIFEST_DIR");
        let mut shell = Command::new("/bin/sh");
        shell
            .args(["-c", &line.command])
            .current_dir(home)
            .env_clear()
            .env("HOME", home)
            .envs(settings.iter().map(|(name, value)| (name, value)))
            .env("DATABASE_URL", url)
            .env("PATH", latchwork.search_path())
            .env("HOST", self.to_string())
            .stdin(Stdio::null());
        shell
    }
}

impl fmt::Display for Host {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::A => "a",
            Self::B => "b",
        })
    }
}

impl Running {
    /// Starts a line on all hosts at once. What it says there goes into one pipe, so that it is in order.
    pub(crate) fn start(line: &Line, settings: &Settings, latchwork: &Latchwork, url: &str) -> io::Result<Self> {
        let (said, says) = pipe()?;
        let mut on = Vec::new();
        for host in HOSTS {
            let mut command = host.command(line, settings, latchwork, url);
            on.push((host, command.stdout(says.try_clone()?).spawn()?));
        }
        Ok(Self { said, on })
    }

    /// Waits until it has ended everywhere.
    pub(crate) fn ended(self) -> io::Result<(Journal, Vec<(Host, ExitStatus)>)> {
        let journal = Journal::read(self.said)?;
        let wait = |(host, mut child): (Host, Child)| Ok((host, child.wait()?));
        let ended: io::Result<_> = self.on.into_iter().map(wait).collect();
        Ok((journal, ended?))
    }
}
