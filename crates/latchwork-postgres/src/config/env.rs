//! Settings from the environment.

use std::ffi::OsString;
use std::path::PathBuf;

use super::keys::{Draft, Key};
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
];

/// Reads the settings through `get`, which stands for the environment.
pub(super) fn read(get: &dyn Fn(&str) -> Option<OsString>) -> Result<Config, ConfigError> {
    let variable = |name: &'static str| match get(name).filter(|value| !value.is_empty()) {
        Some(value) => value
            .into_string()
            .map(Some)
            .map_err(|_| ConfigError::NotUnicode { variable: name }),
        None => Ok(None),
    };
    let mut config = match variable("DATABASE_URL")? {
        Some(url) => parse::parse(&url)?.build()?,
        None => {
            let mut draft = Draft::default();
            let mut any = false;
            for &(name, key) in VARIABLES {
                if let Some(value) = variable(name)? {
                    draft.set(key, value)?;
                    any = true;
                }
            }
            if !any {
                return Err(ConfigError::NotSet);
            }
            draft.build()?
        }
    };
    if config.password.is_none() && config.passfile.is_none() {
        let home = get("HOME").filter(|home| !home.is_empty());
        config.passfile = match variable("PGPASSFILE")? {
            Some(path) => Some(PathBuf::from(path)),
            None => home.map(|home| PathBuf::from(home).join(".pgpass")),
        };
    }
    Ok(config)
}
