//! From the command line to a server.

use std::time::Duration;

use clap::Args;
use latchwork_postgres::{Config, Postgres, PostgresOptions, config::ConfigError};

use crate::failure::{Failure, Status};

/// Where the database is.
#[derive(Debug, Args)]
pub(crate) struct ConnectionArgs {
    /// The database, as postgres://user@host/database or host=.. dbname=.. Others on this machine can read it in the
    /// list of processes: give a password by DATABASE_URL, PGPASSWORD or ~/.pgpass instead
    #[arg(long, global = true, value_name = "URL", hide_env = true)]
    url: Option<String>,
}

impl ConnectionArgs {
    pub(crate) fn config(&self) -> Result<Config, Failure> {
        let config = match &self.url {
            // As DATABASE_URL: a variable of a script that is not set must not mean another database.
            Some(url) if url.trim().is_empty() => return Err(Failure::usage("--url is empty; name a database")),
            Some(url) => Config::from_text_and_env(url),
            None => Config::from_env(),
        };
        config.map_err(|error| match error {
            ConfigError::NotSet => Failure::new(
                Status::USAGE,
                "no database is named; give --url, or set DATABASE_URL, or PGHOST and the like",
            ),
            error => error.into(),
        })
    }

    /// The options of a process that others see under a name, unless the settings have one.
    pub(crate) fn options(config: &Config, application: &str) -> PostgresOptions {
        let options = PostgresOptions::default();
        match config.application_name() {
            Some(_) => options,
            None => options.with_application_name(application),
        }
    }

    /// For how long a session of these options is trusted without a word from it, and how old it has to be for a fenced lock.
    pub(crate) fn trust() -> Duration {
        PostgresOptions::default().timing.trust()
    }

    pub(crate) async fn connect(&self, application: &str) -> Result<Postgres, Failure> {
        let config = self.config()?;
        let options = Self::options(&config, application);
        Ok(Postgres::connect(config, options).await?)
    }
}
