//! What the command line asks for.

use std::ffi::OsString;

pub(crate) const HELP: &str = "\
Two instances of one service, one PostgreSQL, and what its locks keep apart.

Usage: cargo run -p quickstart [-- OPTIONS]

Fires requests at both instances, kills one of them, and tells what happened.

Options:
  --serve    keep both instances up instead, and print their URLs; they answer
               POST /orders/{id}/charge?ms=N   one at a time for each id: 200, or 409
               GET  /ai?ms=N                   5 at once over both: 200, or 503
             until Ctrl-C
  --port N   have the instances listen on the ports N and N+1 of 127.0.0.1 [default: free ones]
  --memory   use the in-memory engine, as if there were no PostgreSQL
  --help     print this

PostgreSQL is the server that DATABASE_URL names, or else a throw-away cluster of the installed
binaries (on PATH, by pg_config, in /usr/lib/postgresql). RUST_LOG=latchwork=debug shows what the
library logs.

Exit status: 0 every promise held, 1 something failed, 2 the command line or DATABASE_URL cannot be
understood, 128 + N ended by signal N (0 with --serve, which ends so).";

/// What to do.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Command {
    Help,
    /// Shows the promises, or with `serve` keeps the instances up.
    Run {
        serve: bool,
        memory: bool,
        port: Option<u16>,
    },
    /// Is one instance: what this program starts itself again as.
    Instance {
        name: &'static str,
        port: u16,
        namespace: String,
    },
}

/// The first word of the command line of an instance.
pub(crate) const INSTANCE: &str = "instance";
/// The names of the two instances.
pub(crate) const NAMES: [&str; 2] = ["A", "B"];

/// Reads the words behind the program's name; the error says what is wrong with them.
pub(crate) fn parse(words: impl IntoIterator<Item = OsString>) -> Result<Command, String> {
    let mut words = words.into_iter().map(|word| {
        word.into_string()
            .map_err(|word| format!("{} is not valid Unicode", word.display()))
    });
    let (mut serve, mut memory, mut port) = (false, false, None);
    while let Some(word) = words.next().transpose()? {
        match word.as_str() {
            "--help" | "-h" => return Ok(Command::Help),
            "--serve" => serve = true,
            "--memory" => memory = true,
            "--port" => port = Some(parse_port(words.next().transpose()?.as_deref())?),
            INSTANCE => return parse_instance(words),
            other => match other.strip_prefix("--port=") {
                Some(value) => port = Some(parse_port(Some(value))?),
                None => return Err(format!("there is no option {other:?}")),
            },
        }
    }
    Ok(Command::Run { serve, memory, port })
}

fn parse_port(word: Option<&str>) -> Result<u16, String> {
    let word = word.ok_or("--port needs a number")?;
    match word.parse() {
        // The second instance listens on the next one.
        Ok(port) if (1..u16::MAX).contains(&port) => Ok(port),
        _ => Err(format!("--port {word:?} is no number from 1 to {}", u16::MAX - 1)),
    }
}

fn parse_instance(mut words: impl Iterator<Item = Result<String, String>>) -> Result<Command, String> {
    let mut word = || {
        words
            .next()
            .transpose()?
            .ok_or_else(|| "an instance needs three words".to_owned())
    };
    let (name, port, namespace) = (word()?, word()?, word()?);
    let name = NAMES.into_iter().find(|known| *known == name);
    Ok(Command::Instance {
        name: name.ok_or("there is no such instance")?,
        port: port.parse().map_err(|_| format!("{port:?} is no port"))?,
        namespace,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(line: &str) -> Result<Command, String> {
        parse(line.split_whitespace().map(OsString::from))
    }

    fn run(serve: bool, memory: bool, port: Option<u16>) -> Command {
        Command::Run { serve, memory, port }
    }

    #[test]
    fn options_stand_in_any_order() {
        assert_eq!(parsed(""), Ok(run(false, false, None)));
        assert_eq!(parsed("--port 8080 --serve"), Ok(run(true, false, Some(8080))));
        assert_eq!(parsed("--memory --port=8080"), Ok(run(false, true, Some(8080))));
        assert_eq!(parsed("--serve --help"), Ok(Command::Help));
    }

    #[test]
    fn what_is_not_understood_is_named() {
        for (line, named) in [
            ("--sevre", "--sevre"),
            ("serve", "serve"),
            ("--port", "--port"),
            ("--port 0", "\"0\""),
            ("--port 65535", "65535"),
            ("--port -1", "-1"),
            ("--port=x", "\"x\""),
            ("instance A", "three words"),
            ("instance C 0 x", "no such instance"),
        ] {
            let error = parsed(line).unwrap_err();
            assert!(error.contains(named), "{line}: {error}");
        }
    }

    #[test]
    fn an_instance_is_told_its_name_port_and_namespace() {
        let instance = Command::Instance {
            name: "B",
            port: 81,
            namespace: "quickstart-1".to_owned(),
        };
        assert_eq!(parsed("instance B 81 quickstart-1"), Ok(instance));
    }
}
