//! The command line.

use std::{
    ffi::OsString,
    io::{self, Write as _},
    process::ExitCode,
    time::Duration,
};

use clap::{
    Arg, Parser, Subcommand,
    error::{ContextKind, ContextValue},
};

use crate::{
    commands::{bench, r#break, completions, doctor, elect, key, ls, run, schema},
    connection::ConnectionArgs,
    failure::Status,
};

/// Distributed locks, slots and leadership on PostgreSQL.
///
/// Commands that need a database find it by --url, by DATABASE_URL, or by libpq's PGHOST, PGUSER and so on; a password
/// that none of them has is looked up in PGPASSFILE or ~/.pgpass.
#[derive(Debug, Parser)]
#[command(name = "latchwork", version, propagate_version = true, after_help = STATUS_HELP)]
pub(crate) struct Cli {
    #[command(flatten)]
    pub(crate) connection: ConnectionArgs,
    #[command(subcommand)]
    pub(crate) verb: Verb,
}

const STATUS_HELP: &str = "Exit status: that of the command that was run, 128 + n for a signal n; 64 usage; \
     69 database unreachable or refused, or nothing known of the lock; 70 the system refuses something; 74 lock lost; 75 busy; \
     124 stopped by --max-run; 126, 127 command can't be run, is not there.\n\
     doctor: 0 fit, 1 warnings, 2 unfit.";

#[derive(Debug, Subcommand)]
pub(crate) enum Verb {
    Run(run::RunArgs),
    Elect(elect::ElectArgs),
    Ls(ls::LsArgs),
    Key(key::KeyArgs),
    Doctor(doctor::DoctorArgs),
    Break(r#break::BreakArgs),
    Schema(schema::SchemaArgs),
    Bench(bench::BenchArgs),
    Completions(completions::CompletionsArgs),
}

/// Says why the command line was refused, or shows the help that it asks for.
pub(crate) fn refused(mut error: clap::Error) -> ExitCode {
    if !error.use_stderr() {
        // Whoever reads it may have seen enough.
        let _ = error.print();
        return Status::SUCCESS.into();
    }
    if lacks_command(&error) {
        let tip = "the command comes after --, as in: latchwork run mail -- ./mail.sh";
        error.insert(ContextKind::Suggested, ContextValue::StyledStrs(vec![tip.into()]));
    }
    let text = error.render().to_string();
    let text = without_secrets(text, std::env::args_os().skip(1));
    let _ = io::stderr().write_all(text.as_bytes());
    Status::USAGE.into()
}

/// Whether there is no command to run, as for who has forgotten the `--` before it: all its words are the name then.
fn lacks_command(error: &clap::Error) -> bool {
    match error.get(ContextKind::InvalidArg) {
        Some(ContextValue::Strings(lacking)) => lacking.iter().any(|argument| argument.starts_with("<CMD>")),
        _ => false,
    }
}

/// The option that says where the database is, for verbs that need none: taken, as all verbs take it, and not shown.
pub(crate) fn unused_url() -> Arg {
    Arg::new("url").long("url").hide(true)
}

/// Leaves out arguments that may be connection settings, with a password in them: clap shows what it does not
/// understand.
fn without_secrets(mut text: String, arguments: impl Iterator<Item = OsString>) -> String {
    for argument in arguments {
        let argument = argument.to_string_lossy();
        let value = argument.strip_prefix("--url=").unwrap_or(&argument);
        if (value.contains("://") || value.contains("password")) && !value.is_empty() {
            text = text.replace(value, "(not shown)");
        }
    }
    text
}

/// Reads a time such as `90`, `1.5s`, `250ms` or `1h 30m`; a number alone is seconds. More than ten years are ten years, which
/// every clock can add.
pub(crate) fn duration(text: &str) -> Result<Duration, String> {
    let seconds = text.parse::<f64>().ok();
    let time = match seconds {
        Some(seconds) => Duration::try_from_secs_f64(seconds).map_err(|error| error.to_string()),
        None => humantime::parse_duration(text).map_err(|_| "write it as 90, 250ms, 30s, 5m or 1h30m".to_owned()),
    };
    Ok(time?.min(LONGEST))
}

/// As [`duration`], for what would never end, or never pause, without a time.
pub(crate) fn some_duration(text: &str) -> Result<Duration, String> {
    match duration(text)? {
        Duration::ZERO => Err("it must be longer than nothing".to_owned()),
        time => Ok(time),
    }
}

const LONGEST: Duration = Duration::from_secs(10 * 365 * 86_400);

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    use super::*;

    #[test]
    fn the_command_line_is_sound() {
        Cli::command().debug_assert();
    }

    /// Arguments that are shared must not put their own words in its place.
    #[test]
    fn every_verb_says_what_it_does() {
        let shown: Vec<(String, String)> = Cli::command()
            .get_subcommands()
            .map(|verb| {
                let about = verb.get_about().map(ToString::to_string).unwrap_or_default();
                (verb.get_name().to_owned(), about)
            })
            .collect();
        let table = [
            ("run", "Runs a command while a lock"),
            ("elect", "Runs a command while this process leads"),
            ("ls", "Shows who holds"),
            ("key", "Shows the key"),
            ("doctor", "Examines whether"),
            ("break", "Ends the sessions"),
            ("schema", "Shows, makes or checks"),
            ("bench", "Measures acquires"),
            ("completions", "Writes completions"),
        ];
        assert_eq!(shown.len(), table.len());
        for ((verb, about), (name, begins)) in shown.iter().zip(table) {
            assert!(verb == name && about.starts_with(begins), "{verb}: {about}");
        }
    }

    #[test]
    fn times_are_read() {
        let table = [
            ("0", Duration::ZERO),
            ("90", Duration::from_secs(90)),
            ("1.5", Duration::from_millis(1500)),
            ("250ms", Duration::from_millis(250)),
            ("1h30m", Duration::from_secs(5400)),
            ("1e19", LONGEST),
            ("10000000000000000000s", LONGEST),
            ("500years", LONGEST),
        ];
        for (text, expected) in table {
            assert_eq!(duration(text), Ok(expected), "{text}");
        }
        for text in ["", "-1", "soon", "inf", "1e99"] {
            assert!(duration(text).is_err(), "{text}");
        }
    }

    #[test]
    fn connection_settings_are_not_shown() {
        let url = "postgres://shop:secret@db/shop";
        let text = format!("unexpected argument '{url}' found");
        assert!(!without_secrets(text, [OsString::from(url)].into_iter()).contains("secret"));
        let pairs = "host=db password=secret";
        let text = format!("unexpected argument '{pairs}' found");
        assert!(!without_secrets(text, [OsString::from(pairs)].into_iter()).contains("secret"));
    }
}
