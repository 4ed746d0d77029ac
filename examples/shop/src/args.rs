//! What the command line asks for.

use std::{
    ffi::OsString,
    net::{IpAddr, Ipv4Addr, SocketAddr},
};

/// What `--help` prints.
pub(crate) fn help(program: &str) -> String {
    HELP.replace("PROGRAM", program)
}

const HELP: &str = "\
A small shop. Start as many instances as you like: they share what they do by one PostgreSQL.

Usage: cargo run -p PROGRAM [-- OPTIONS]

Options:
  --port N             listen on this port [default: a free one]
  --host ADDRESS       listen on this address [default: 127.0.0.1]
  --database-url URL   the PostgreSQL to use [default: DATABASE_URL, else a throw-away cluster]
  --help               print this

Routes:
  POST /orders/{id}/charge?ms=N   {\"amount\": 5}   one charge of an order at a time: 200, or 409
  GET  /ai?ms=N[&stream=1]        5 at once over all instances: 200, or 503
  POST /payments?ms=N[&fail=1]    {\"amount\": 5}   one payment for each Idempotency-Key: 201
  GET  /search?q=..               10 a second, 20 in a burst, for each X-Api-Key or address: 200, or 429
  GET  /stats                     what the database knows of all instances

Ctrl-C ends it, and lets requests finish for a few seconds. RUST_LOG=latchwork=debug shows what the
library logs.

Exit status: 0 ended by Ctrl-C or SIGTERM, 1 something failed, 2 the command line or the URL cannot be
understood.";

/// How to start.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Options {
    pub(crate) listen: SocketAddr,
    pub(crate) database_url: Option<String>,
}

/// Reads the words behind the program's name: `None` if they ask for help. The error says what is wrong with them.
pub(crate) fn parse(words: impl IntoIterator<Item = OsString>) -> Result<Option<Options>, String> {
    let mut options = Options {
        listen: SocketAddr::from((Ipv4Addr::LOCALHOST, 0)),
        database_url: None,
    };
    let mut words = words.into_iter().map(|word| {
        word.into_string()
            .map_err(|word| format!("{} is not valid Unicode", word.display()))
    });
    while let Some(word) = words.next().transpose()? {
        let (name, value) = match word.split_once('=') {
            Some((name, value)) => (name, Some(value.to_owned())),
            None => (&*word, None),
        };
        if let ("--help" | "-h", None) = (name, &value) {
            return Ok(None);
        }
        if !["--port", "--host", "--database-url"].contains(&name) {
            return Err(format!("there is no option {name:?}"));
        }
        let value = match value {
            Some(value) => value,
            None => words
                .next()
                .transpose()?
                .ok_or_else(|| format!("{name} needs a value"))?,
        };
        match name {
            "--port" => options.listen.set_port(parse_port(&value)?),
            "--host" => options.listen.set_ip(parse_host(&value)?),
            _ => options.database_url = Some(value),
        }
    }
    Ok(Some(options))
}

fn parse_port(text: &str) -> Result<u16, String> {
    match text.parse() {
        Ok(port) if port > 0 => Ok(port),
        _ => Err(format!("--port {text:?} is no number from 1 to {}", u16::MAX)),
    }
}

fn parse_host(text: &str) -> Result<IpAddr, String> {
    text.parse()
        .map_err(|_| format!("--host {text:?} is no address, such as 0.0.0.0"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(line: &str) -> Result<Option<Options>, String> {
        parse(line.split_whitespace().map(OsString::from))
    }

    fn options(listen: &str, database_url: Option<&str>) -> Result<Option<Options>, String> {
        Ok(Some(Options {
            listen: listen.parse().unwrap(),
            database_url: database_url.map(str::to_owned),
        }))
    }

    #[test]
    fn options_stand_in_any_order_and_with_or_without_an_equals_sign() {
        assert_eq!(parsed(""), options("127.0.0.1:0", None));
        assert_eq!(
            parsed("--database-url postgres://a/b?c=d --port 80 --host 0.0.0.0"),
            options("0.0.0.0:80", Some("postgres://a/b?c=d"))
        );
        assert_eq!(
            parsed("--host=::1 --port=80 --database-url=postgres://a/b?c=d"),
            options("[::1]:80", Some("postgres://a/b?c=d"))
        );
        assert_eq!(parsed("--port 80 --help"), Ok(None));
    }

    #[test]
    fn what_is_not_understood_is_named() {
        for (line, named) in [
            ("--prot 80", "--prot"),
            ("serve", "serve"),
            ("--port", "--port"),
            ("--port 0", "\"0\""),
            ("--port 65536", "\"65536\""),
            ("--port=", "\"\""),
            ("--host localhost", "\"localhost\""),
            ("--database-url", "--database-url"),
        ] {
            let error = parsed(line).unwrap_err();
            assert!(error.contains(named), "{line}: {error}");
        }
    }
}
