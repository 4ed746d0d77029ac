//! From text to pairs of keys and values: the two forms that libpq reads.

use percent_encoding::percent_decode_str;

use super::ConfigError;
use super::keys::{Draft, Key};

/// Reads a URL or a list of `key=value` pairs.
pub(super) fn parse(text: &str) -> Result<Draft, ConfigError> {
    let rest = text
        .strip_prefix("postgres://")
        .or_else(|| text.strip_prefix("postgresql://"));
    match rest {
        Some(rest) => parse_url(rest),
        None if text.contains("://") => Err(ConfigError::Malformed {
            problem: "a URL must start with postgres:// or postgresql://",
        }),
        None => parse_pairs(text),
    }
}

fn parse_url(rest: &str) -> Result<Draft, ConfigError> {
    let mut draft = Draft::default();
    let before_slash = rest.split('/').next().unwrap_or_default();
    let rest = match before_slash.split_once('@') {
        // Either an @ in the query or a question mark in the password: one of them must be escaped.
        Some((login, _)) if login.contains('?') => return Err(ConfigError::UnescapedUrl),
        Some((login, _)) => {
            parse_login(login, &mut draft)?;
            &rest[login.len() + 1..]
        }
        None => rest,
    };
    let (rest, query) = match rest.split_once('?') {
        Some((rest, query)) => (rest, Some(query)),
        None => (rest, None),
    };
    let (hosts, database) = rest.split_once('/').unwrap_or((rest, ""));
    // An @ left over here: an unescaped password was cut in two.
    if rest.contains('@') {
        return Err(ConfigError::UnescapedUrl);
    }
    parse_hosts(hosts, &mut draft)?;
    if !database.is_empty() {
        draft.set(Key::Dbname, decode(database)?)?;
    }
    for pair in query.unwrap_or_default().split('&').filter(|pair| !pair.is_empty()) {
        let (key, value) = pair.split_once('=').ok_or(ConfigError::Malformed {
            problem: "a part of the query after ? has no = in it",
        })?;
        match draft.set_named(&decode(key)?, decode(value)?) {
            // The "key" may be the tail of a password that had a slash and a question mark in it.
            Err(ConfigError::UnknownKey { .. }) if query.is_some_and(|query| query.contains('@')) => {
                return Err(ConfigError::UnescapedUrl);
            }
            other => other?,
        }
    }
    Ok(draft)
}

fn parse_login(login: &str, draft: &mut Draft) -> Result<(), ConfigError> {
    let (user, password) = match login.split_once(':') {
        Some((user, password)) => (user, Some(password)),
        None => (login, None),
    };
    if !user.is_empty() {
        draft.set(Key::User, decode(user)?)?;
    }
    if let Some(password) = password.filter(|password| !password.is_empty()) {
        draft.set(Key::Password, decode(password)?)?;
    }
    Ok(())
}

fn parse_hosts(hosts: &str, draft: &mut Draft) -> Result<(), ConfigError> {
    if hosts.is_empty() {
        return Ok(());
    }
    let mut names = Vec::new();
    let mut ports = Vec::new();
    for entry in hosts.split(',') {
        let (name, port) = split_port(entry)?;
        names.push(decode(name)?);
        ports.push(port);
    }
    if names.iter().any(|name| name.contains(',')) {
        return Err(ConfigError::Malformed {
            problem: "a host name has a comma in it",
        });
    }
    if names.iter().any(|name| !name.is_empty()) || names.len() > 1 {
        draft.set(Key::Host, names.join(","))?;
    }
    if ports.iter().any(|port| !port.is_empty()) {
        draft.set(Key::Port, ports.join(","))?;
    }
    Ok(())
}

fn split_port(entry: &str) -> Result<(&str, &str), ConfigError> {
    let Some(bracketed) = entry.strip_prefix('[') else {
        return match entry.split_once(':') {
            Some((_, port)) if port.contains(':') => Err(ConfigError::Malformed {
                problem: "an IPv6 address needs square brackets around it",
            }),
            Some(parts) => Ok(parts),
            None => Ok((entry, "")),
        };
    };
    let (name, after) = bracketed.split_once(']').ok_or(ConfigError::Malformed {
        problem: "an IPv6 address has no closing square bracket",
    })?;
    match after.strip_prefix(':') {
        Some(port) => Ok((name, port)),
        None if after.is_empty() => Ok((name, "")),
        None => Err(ConfigError::Malformed {
            problem: "only :port may follow an IPv6 address in square brackets",
        }),
    }
}

fn decode(text: &str) -> Result<String, ConfigError> {
    let mut rest = text;
    while let Some(at) = rest.find('%') {
        let digits = rest.get(at + 1..at + 3).unwrap_or_default();
        if digits.len() != 2 || !digits.bytes().all(|b| b.is_ascii_hexdigit()) {
            return Err(ConfigError::UnescapedUrl);
        }
        rest = &rest[at + 3..];
    }
    let decoded = percent_decode_str(text)
        .decode_utf8()
        .map_err(|_| ConfigError::Malformed {
            problem: "a percent-encoded part is not UTF-8",
        })?;
    Ok(decoded.into_owned())
}

fn parse_pairs(text: &str) -> Result<Draft, ConfigError> {
    let mut draft = Draft::default();
    let mut rest = text.trim_start();
    let mut after_password = false;
    while !rest.is_empty() {
        let key_end = rest.find(|c: char| c == '=' || c.is_whitespace()).unwrap_or(rest.len());
        let (name, tail) = rest.split_at(key_end);
        let Some(tail) = tail.trim_start().strip_prefix('=') else {
            return Err(if after_password {
                ConfigError::UnknownKeyAfterPassword
            } else {
                ConfigError::Malformed {
                    problem: "a key has no = after it",
                }
            });
        };
        let (value, tail) = pair_value(tail.trim_start())?;
        match draft.set_named(name, value) {
            Err(ConfigError::UnknownKey { .. }) if after_password => return Err(ConfigError::UnknownKeyAfterPassword),
            other => other?,
        }
        after_password = name == "password";
        rest = tail.trim_start();
    }
    Ok(draft)
}

/// Takes one value, quoted or not, off the front and gives the rest.
fn pair_value(text: &str) -> Result<(String, &str), ConfigError> {
    let quoted = text.starts_with('\'');
    let mut value = String::new();
    let mut chars = text.char_indices();
    if quoted {
        chars.next();
    }
    while let Some((at, c)) = chars.next() {
        match c {
            '\\' => match chars.next() {
                Some((_, escaped)) => value.push(escaped),
                None => {
                    return Err(ConfigError::Malformed {
                        problem: "the text ends in a backslash",
                    });
                }
            },
            '\'' if quoted => return Ok((value, &text[at + 1..])),
            c if c.is_whitespace() && !quoted => return Ok((value, &text[at..])),
            c => value.push(c),
        }
    }
    if quoted {
        return Err(ConfigError::Malformed {
            problem: "a single quote is not closed",
        });
    }
    Ok((value, ""))
}
