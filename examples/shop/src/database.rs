//! Where the PostgreSQL is. A service of yours needs the first half of this at most: `Config::from_env()`.

use std::env;

use latchwork::{Config, postgres::config::ConfigError};
use latchwork_harness::{Cluster, HarnessError};

use crate::failure::{Failure, chain};

/// The PostgreSQL to use.
#[derive(Debug)]
pub(crate) struct Database {
    pub(crate) config: Config,
    /// Stopped and removed when this is dropped, or the process ends in any other way.
    _cluster: Option<Cluster>,
}

impl Database {
    /// Takes the server that was asked for, else that of `DATABASE_URL`, else starts a throw-away cluster.
    pub(crate) fn find(url: Option<&str>) -> Result<Self, Failure> {
        let given = match url {
            Some(url) => url.parse().map_err(|error| unusable("--database-url", &error))?,
            None if env::var_os("DATABASE_URL").is_some_and(|url| !url.is_empty()) => {
                Config::from_env().map_err(|error| unusable("DATABASE_URL", &error))?
            }
            None => return Self::throw_away(),
        };
        Ok(Self {
            config: given,
            _cluster: None,
        })
    }

    fn throw_away() -> Result<Self, Failure> {
        eprintln!("Starting a throw-away cluster, since there is neither --database-url nor DATABASE_URL.");
        let cluster = Cluster::start().map_err(|error| match error {
            HarnessError::NoInstallation => Failure::new(NOTHING_FOUND),
            error => error.into(),
        })?;
        let url = cluster.url();
        eprintln!("It lasts as long as this instance. Further ones share it: --database-url '{url}'");
        Ok(Self {
            config: url.parse()?,
            _cluster: Some(cluster),
        })
    }
}

fn unusable(what: &str, error: &ConfigError) -> Failure {
    Failure::usage(format!("{what} cannot be used: {}", chain(error)))
}

const NOTHING_FOUND: &str = "\
no PostgreSQL was found: give --database-url, set DATABASE_URL, or install a server (on Debian: \
`apt-get install postgresql`)";
