//! The crontab, as a cron daemon reads it.

use std::{fmt, str::FromStr};

use anyhow::{Context as _, bail, ensure};
use latchwork::once::Schedule;

use crate::{command::Latchwork, hosts::Host};

/// What a crontab says.
#[derive(Debug)]
pub(crate) struct Crontab {
    /// What its lines have in their environment.
    pub(crate) settings: Settings,
    pub(crate) lines: Vec<Line>,
}

/// Names and values.
pub(crate) type Settings = Vec<(String, String)>;

/// A command, and when it is due.
#[derive(Debug)]
pub(crate) struct Line {
    schedule: String,
    pub(crate) command: String,
}

impl FromStr for Crontab {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> anyhow::Result<Self> {
        let (mut settings, mut lines) = (Settings::new(), Vec::new());
        let meant = text.lines().map(str::trim);
        for line in meant.filter(|line| !line.is_empty() && !line.starts_with('#')) {
            match line.split_once('=') {
                Some((name, value)) if is_name(name.trim()) => {
                    settings.push((name.trim().to_owned(), value.trim().to_owned()));
                }
                _ => lines.push(line.parse().with_context(|| line.to_owned())?),
            }
        }
        Ok(Self { settings, lines })
    }
}

impl Line {
    /// Asks the command itself whether it understands the line.
    pub(crate) fn check(&self, settings: &Settings, latchwork: &Latchwork) -> anyhow::Result<()> {
        let output = Host::A.command(self, settings, latchwork, NOWHERE).output()?;
        let complaint = String::from_utf8_lossy(&output.stderr);
        // It reads its arguments before it looks for the database.
        ensure!(
            output.status.code() == Some(UNAVAILABLE),
            "latchwork does not understand this line: {self}\n{complaint}"
        );
        Ok(())
    }

    /// Whether the line waits for others, and does not leave the work to them.
    pub(crate) fn waits(&self) -> bool {
        self.command.split_whitespace().any(|word| word == "--wait")
    }
}

impl FromStr for Line {
    type Err = anyhow::Error;

    fn from_str(line: &str) -> anyhow::Result<Self> {
        let mut rest = line;
        let mut fields = Vec::new();
        for _ in 0..5 {
            let (field, after) = rest.split_once(char::is_whitespace).context("there is no command")?;
            fields.push(field);
            rest = after.trim_start();
        }
        let schedule = fields.join(" ");
        Schedule::cron(&schedule, "UTC")?;
        if rest.contains('%') {
            bail!("for cron a % is the end of the line");
        }
        Ok(Self {
            schedule,
            command: rest.to_owned(),
        })
    }
}

impl fmt::Display for Line {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.schedule, self.command)
    }
}

fn is_name(text: &str) -> bool {
    !text.is_empty() && text.chars().all(|it| it.is_ascii_alphanumeric() || it == '_')
}

/// A database that is not there.
const NOWHERE: &str = "host=/nowhere";
/// What `latchwork` ends with when there is no database.
const UNAVAILABLE: i32 = 69;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_and_lines_are_told_apart() {
        let crontab: Crontab = "# all\nA=b=c\n\n0 3 * * 1-5  run --tick '0 3 * * *' X=1\n"
            .parse()
            .unwrap();
        assert_eq!(crontab.settings, [("A".to_owned(), "b=c".to_owned())]);
        let lines: Vec<_> = crontab.lines.iter().map(ToString::to_string).collect();
        assert_eq!(lines, ["0 3 * * 1-5 run --tick '0 3 * * *' X=1"]);
    }

    #[test]
    fn lines_that_cron_does_not_run_are_refused() {
        for line in ["0 3 * * *", "0 25 * * * true", "* * * * * date +%s"] {
            assert!(line.parse::<Line>().is_err(), "{line}");
        }
    }
}
