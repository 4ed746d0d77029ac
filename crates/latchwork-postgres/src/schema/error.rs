use tokio_postgres::Error as DriverError;

use super::VERSION;
use crate::{
    connect::ConnectError,
    sqlstate::{Condition, condition},
};

/// Why the tables can't be used, or could not be made.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SchemaError {
    /// There are no tables, or not all of them.
    #[error(
        "the tables of latchwork are missing: run `latchwork schema install` once, or Postgres::install_schema, or apply the \
         SQL that schema::sql() and `latchwork schema print` give"
    )]
    Missing,
    /// The tables are older than this program needs.
    #[error(
        "the tables of latchwork are of version {found}, and this program needs version {VERSION}: run \
         `latchwork schema install`, or Postgres::install_schema, or apply the SQL that schema::sql() and `latchwork schema \
         print` give now"
    )]
    Older {
        /// The version that is there.
        found: i32,
    },
    /// The tables are newer than this program knows.
    #[error(
        "the tables of latchwork are of version {found}, and this program knows version {VERSION} only: update the \
         program"
    )]
    Newer {
        /// The version that is there.
        found: i32,
    },
    /// There is no connection to be had.
    #[error("cannot connect to the database to see to the tables of latchwork")]
    Connect {
        /// Why not.
        #[from]
        source: ConnectError,
    },
    /// The role has not the right to do this.
    #[error(
        "this role may not use or make the tables of latchwork: to make them it needs CREATE on the database, to bring \
         older ones up to date it must own them, to use them it needs USAGE on schema latchwork, and SELECT, INSERT, \
         UPDATE and DELETE on the tables in it"
    )]
    Forbidden {
        /// What the server says.
        source: DriverError,
    },
    /// The session is read-only, as by `default_transaction_read_only`, or since the server is a standby.
    #[error(
        "the tables of latchwork cannot be made or brought up to date in a read-only session: connect to the primary, as a role that may write"
    )]
    ReadOnly {
        /// What the server says.
        source: DriverError,
    },
    /// Anything else.
    #[error("the server reports an error about the tables of latchwork")]
    Server {
        /// What the server says.
        source: DriverError,
    },
}

impl SchemaError {
    pub(crate) fn from_driver(source: DriverError) -> Self {
        match condition(&source) {
            Some(Condition::Forbidden) => Self::Forbidden { source },
            Some(Condition::ReadOnly) => Self::ReadOnly { source },
            _ => Self::Server { source },
        }
    }
}
