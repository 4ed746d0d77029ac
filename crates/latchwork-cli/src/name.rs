//! What is locked, as the command line names it.

use clap::Args;
use latchwork_core::{Key, Locks, Namespace, once::OnceBuilder};

use crate::{failure::Failure, names::Names, tool::Tool};

/// The name of a lock.
#[derive(Debug, Args)]
pub(crate) struct NameArgs {
    /// The name, or its parts: `order 42` is what ["order", "42"] is in a program. A number is a name too, unless --raw says
    /// that it is the key itself
    #[arg(
        value_name = "NAME",
        required_unless_present = "compat",
        allow_negative_numbers = true
    )]
    parts: Vec<String>,
    #[command(flatten)]
    namespace: NamespaceArgs,
    /// Takes the key that another tool has for this name
    #[arg(long, value_name = "TOOL")]
    compat: Option<Tool>,
    /// NAME is a number, a pair of two numbers, or classid/objid/objsubid as pg_locks has them
    #[arg(long, conflicts_with = "compat")]
    raw: bool,
}

/// What names are mixed with.
#[derive(Debug, Args)]
pub(crate) struct NamespaceArgs {
    /// What names are mixed with, as in the program that shares the lock
    #[arg(long, value_name = "NS", env = "LATCHWORK_NAMESPACE")]
    namespace: Option<String>,
}

impl NamespaceArgs {
    pub(crate) fn namespace(&self) -> Result<Namespace, Failure> {
        match &self.namespace {
            Some(name) if !name.is_empty() => Ok(Namespace::new(name)?),
            _ => Ok(Namespace::unnamed()),
        }
    }
}

impl NameArgs {
    pub(crate) fn key(&self) -> Result<Key, Failure> {
        if let ([name], false, None) = (&self.parts[..], self.raw, self.compat)
            && name.starts_with('-')
        {
            // Only numbers come here with a minus, and the wrong key would exclude nobody.
            return Err(Failure::usage(format!(
                "is {name} a name or a key? give --raw for the key; for the name, give --raw and the number that \
                 `latchwork key {name}` shows"
            )));
        }
        key_of(&self.parts, &self.namespace, self.compat, self.raw)
    }

    /// Names the lock, and its slots, in words that have the number of its key.
    pub(crate) fn name_in(&self, text: &str, key: Key) -> String {
        let mut names = Names::default();
        names.add(key, &self.shown());
        names.put_into(text)
    }

    /// As [`name_in`](Self::name_in), for what a command has failed with.
    pub(crate) fn name_failure(&self, failure: Failure, key: Key) -> Failure {
        failure.reworded(|text| self.name_in(text, key))
    }

    /// What is done once under this name. The reports of it have the name, or the number of the key where it has parts.
    pub(crate) fn once(&self, locks: &Locks, key: Key) -> Result<OnceBuilder, Failure> {
        match &self.parts[..] {
            [name] if !self.raw && self.compat.is_none() => {
                let locks = locks.with_namespace(self.namespace.namespace()?);
                Ok(locks.once(name.as_str()))
            }
            _ => Ok(locks.once(key)),
        }
    }

    /// What a command is told of its lock.
    pub(crate) fn environment(&self, key: Key) -> Vec<(&'static str, String)> {
        vec![("LATCHWORK_NAME", self.shown()), ("LATCHWORK_KEY", key.to_string())]
    }

    /// The name as it was given.
    pub(crate) fn shown(&self) -> String {
        match self.compat {
            Some(tool) if self.parts.is_empty() => tool.name(),
            _ => self.parts.join("/"),
        }
    }
}

/// What a command may be told of its lock, by `run` and `elect`.
pub(crate) const VARIABLES: [&str; 4] = ["LATCHWORK_NAME", "LATCHWORK_KEY", "LATCHWORK_TERM", "LATCHWORK_SLOT"];

/// The key of a name in these parts, however they are meant.
pub(crate) fn key_of(
    parts: &[String],
    namespace: &NamespaceArgs,
    compat: Option<Tool>,
    is_raw: bool,
) -> Result<Key, Failure> {
    match compat {
        Some(tool) => tool.key(parts).map_err(Failure::usage),
        None if is_raw => raw_key(parts),
        None => {
            let parts: Vec<&str> = parts.iter().map(String::as_str).collect();
            Ok(namespace.namespace()?.key_of(&parts)?)
        }
    }
}

fn raw_key(parts: &[String]) -> Result<Key, Failure> {
    raw(&parts.join(" ")).ok_or_else(|| {
        Failure::usage("a raw key is a number of 64 bits, a pair of two numbers of 32 bits, or classid/objid/objsubid")
    })
}

/// Reads a key as this command shows it: `-7`, `(1, 2)` or `0/7/1`.
pub(crate) fn raw(text: &str) -> Option<Key> {
    if let Ok(number) = text.parse() {
        return Some(Key::bigint(number));
    }
    let columns: Vec<&str> = text.split('/').collect();
    if let [classid, objid, objsubid] = columns[..] {
        return Key::from_pg_locks(classid.parse().ok()?, objid.parse().ok()?, objsubid.parse().ok()?);
    }
    let pair: Vec<&str> = text
        .trim_start_matches('(')
        .trim_end_matches(')')
        .split([',', ' '])
        .filter(|number| !number.is_empty())
        .collect();
    match pair[..] {
        [first, second] => Some(Key::pair(first.parse().ok()?, second.parse().ok()?)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_raw_key_is_read_in_every_form_that_is_shown() {
        for key in [Key::bigint(i64::MIN), Key::bigint(7), Key::pair(-1, i32::MAX)] {
            let columns = format!("{}/{}/{}", key.classid(), key.objid(), key.objsubid());
            for text in [key.to_string(), columns] {
                assert_eq!(raw(&text), Some(key), "{text}");
            }
        }
        for text in ["1 -2", "1,-2", "1, -2"] {
            assert_eq!(raw(text), Some(Key::pair(1, -2)), "{text}");
        }
        for text in ["", "x", "1 2 3", "9223372036854775808", "1/2", "1/2/3", "2147483648 1"] {
            assert_eq!(raw(text), None, "{text}");
        }
    }
}
