//! Settings from the environment.

use std::ffi::OsString;
use std::path::PathBuf;

use super::keys::{Draft, Key, advice_instead_of};
use super::{Config, ConfigError, parse};

/// The variables of libpq that are read when `DATABASE_URL` is not set.
const VARIABLES: &[(&str, Key)] = &[
    ("PGHOST", Key::Host),
    ("PGHOSTADDR", Key::Hostaddr),
    ("PGPORT", Key::Port),
    ("PGUSER", Key::User),
    ("PGPASSWORD", Key::Password),
    ("PGPASSFILE", Key::Passfile),
    ("PGDATABASE", Key::Dbname),
    ("PGSSLMODE", Key::Sslmode),
    ("PGSSLROOTCERT", Key::Sslrootcert),
    ("PGSSLCERT", Key::Sslcert),
    ("PGSSLKEY", Key::Sslkey),
    ("PGSSLNEGOTIATION", Key::Sslnegotiation),
    ("PGSSLSNI", Key::Sslsni),
    ("PGAPPNAME", Key::ApplicationName),
    ("PGOPTIONS", Key::Options),
    ("PGCONNECT_TIMEOUT", Key::ConnectTimeout),
    ("PGTARGETSESSIONATTRS", Key::TargetSessionAttrs),
    ("PGLOADBALANCEHOSTS", Key::LoadBalanceHosts),
    ("PGCHANNELBINDING", Key::ChannelBinding),
    ("PGGSSENCMODE", Key::Gssencmode),
];

/// Variables of libpq that are refused as their keys are: the connection would be another, or guarded less, without them.
/// Where they are read at all, of course.
const REFUSED: &[(&str, &str)] = &[
    ("PGSERVICE", "service"),
    ("PGSSLCRL", "sslcrl"),
    ("PGSSLCRLDIR", "sslcrldir"),
    ("PGSSLCERTMODE", "sslcertmode"),
    ("PGSSLMINPROTOCOLVERSION", "ssl_min_protocol_version"),
    ("PGSSLMAXPROTOCOLVERSION", "ssl_max_protocol_version"),
    ("PGREQUIREPEER", "requirepeer"),
    ("PGREQUIREAUTH", "require_auth"),
    ("PGREQUIRESSL", "requiressl"),
];

/// Reads the settings through `get`, which stands for the environment.
pub(super) fn read(get: &dyn Fn(&str) -> Option<OsString>) -> Result<Config, ConfigError> {
    let config = match variable(get, "DATABASE_URL")? {
        Some(url) => parse::parse(&url)?.build()?,
        None => variables(get)?.ok_or(ConfigError::NotSet)?.build()?,
    };
    with_passfile(config, get)
}

/// Reads the settings from a text, and what it leaves open from libpq's variables.
pub(super) fn read_with(text: &str, get: &dyn Fn(&str) -> Option<OsString>) -> Result<Config, ConfigError> {
    let config = parse::parse(text)?.or(variables(get)?.unwrap_or_default()).build()?;
    with_passfile(config, get)
}

/// The settings in libpq's variables, if any is set.
fn variables(get: &dyn Fn(&str) -> Option<OsString>) -> Result<Option<Draft>, ConfigError> {
    for &(name, key) in REFUSED {
        if variable(get, name)?.is_some() {
            let advice = advice_instead_of(key).unwrap_or_default();
            return Err(ConfigError::UnsupportedVariable { variable: name, advice });
        }
    }
    let mut draft = None;
    for &(name, key) in VARIABLES {
        if let Some(value) = variable(get, name)? {
            draft.get_or_insert_with(Draft::default).set(key, value)?;
        }
    }
    Ok(draft)
}

fn variable(get: &dyn Fn(&str) -> Option<OsString>, name: &'static str) -> Result<Option<String>, ConfigError> {
    match get(name).filter(|value| !value.is_empty()) {
        Some(value) => value
            .into_string()
            .map(Some)
            .map_err(|_| ConfigError::NotUnicode { variable: name }),
        None => Ok(None),
    }
}

fn with_passfile(mut config: Config, get: &dyn Fn(&str) -> Option<OsString>) -> Result<Config, ConfigError> {
    if config.password.is_none() && config.passfile.is_none() {
        let home = get("HOME").filter(|home| !home.is_empty());
        config.passfile = match variable(get, "PGPASSFILE")? {
            Some(path) => Some(PathBuf::from(path)),
            None => home.map(|home| PathBuf::from(home).join(".pgpass")),
        };
    }
    Ok(config)
}
