use thiserror::Error;

/// Why connection settings were refused.
///
/// No variant carries a value from the settings, only names of keys, so that printing one never shows a password.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum ConfigError {
    /// The text is neither a URL nor a list of `key=value` pairs.
    #[error(
        "connection settings do not parse: {problem}; write them as \
         postgres://user:password@host:port/database or as host=.. port=.. user=.. dbname=.."
    )]
    Malformed {
        /// What is wrong, without a word of the text itself.
        problem: &'static str,
    },
    /// A part of a URL contains a character that must be percent-encoded.
    #[error(
        "connection URL does not parse: percent-encode special characters in the user name and the password \
         (@ is %40, : is %3A, / is %2F, ? is %3F, # is %23, % is %25)"
    )]
    UnescapedUrl,
    /// A key that neither libpq nor this library knows.
    #[error("connection settings have the unknown key `{key}`; check its spelling, or remove it")]
    UnknownKey {
        /// The key.
        key: String,
    },
    /// A word that is no known key follows a password, and may be a part of it.
    #[error(
        "connection settings have an unknown key after `password` (not shown, it may be a part of the password); \
         put the password in single quotes if it has spaces in it"
    )]
    UnknownKeyAfterPassword,
    /// A libpq key that has no equivalent here and would change what the connection is.
    #[error("connection settings have the key `{key}`, which is not supported here; {advice}")]
    UnsupportedKey {
        /// The key.
        key: &'static str,
        /// What to do instead.
        advice: &'static str,
    },
    /// A variable of libpq that has no equivalent here and would change what the connection is.
    #[error("the environment variable {variable} is set, which is not supported here; unset it, and {advice}")]
    UnsupportedVariable {
        /// The variable.
        variable: &'static str,
        /// What to do instead.
        advice: &'static str,
    },
    /// A key with a value outside its range. The value is not shown.
    #[error("connection settings have a bad value for `{key}`; expected {expected}")]
    InvalidValue {
        /// The key.
        key: &'static str,
        /// What would have been right.
        expected: &'static str,
    },
    /// `host`, `hostaddr` and `port` are lists of different lengths.
    #[error(
        "connection settings list {hosts} hosts but {others} values for `{key}`; give one for each host{or_one}",
        or_one = if *key == "port" { ", or a single one for all" } else { "" }
    )]
    ListLength {
        /// The list that does not match.
        key: &'static str,
        /// How many hosts there are.
        hosts: usize,
        /// How many values the other list has.
        others: usize,
    },
    /// Nothing in the environment says where the server is.
    #[error(
        "no database is configured; set DATABASE_URL (postgres://user:password@host:port/database), or PGHOST and its kin"
    )]
    NotSet,
    /// An environment variable that is not UTF-8.
    #[error("the environment variable {variable} is not valid UTF-8")]
    NotUnicode {
        /// The name of the variable.
        variable: &'static str,
    },
}
