//! The tables of latchwork.
//!
//! Locks, slots and leaders need no table. Rate limits need `latchwork.rate_limits`, HTTP idempotency
//! `latchwork.idempotency`, and the ticks of `Locks::once` and of schedulers `latchwork.ticks`; nothing else looks for a
//! table, or fails without one.
//!
//! There are two ways to make them, and they may be mixed:
//!
//! - [`install`], or [`Postgres::install_schema`](crate::Postgres::install_schema), makes what is missing. It may run at each start of each instance, also at the same time: an advisory lock
//!   is held meanwhile, and a row says which version is there.
//! - [`sql`] gives the same as one SQL statement, for a migration tool. To run it twice does nothing the second time.
//!
//! | table | | what is in it |
//! |---|---|---|
//! | `latchwork.schema_version` | logged | one row: the version of the tables |
//! | `latchwork.rate_limits` | unlogged | one row for each key and its quotas that was charged lately: its theoretical arrival times. Empty after a crash of the server or a failover: limits begin afresh |
//! | `latchwork.idempotency` | logged | one row for each idempotency key: the stored response |
//! | `latchwork.ticks` | logged | one row for each job that runs by ticks: the last tick that was claimed, when, by whom, and how it ended |
//!
//! # Privileges
//!
//! To install, a role needs `CREATE` on the database, and to bring older tables up to date it must own them. A role that
//! only uses the tables needs this, granted by their owner:
//!
//! ```sql
//! GRANT USAGE ON SCHEMA latchwork TO shop;
//! GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA latchwork TO shop;
//! ```
//!
//! It may call [`install`] too, which finds that nothing is to be done once the owner has installed this version.
//!
//! # Examples
//!
//! ```no_run
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let url = "postgres://shop@db.internal/shop";
//! let (client, connection) = tokio_postgres::connect(url, tokio_postgres::NoTls).await?;
//! tokio::spawn(connection);
//! latchwork_postgres::schema::install(&client).await?;
//! # Ok(())
//! # }
//! ```

mod error;
mod state;

use tokio_postgres::Client;

pub use error::SchemaError;
pub use state::SchemaState;

/// The version of the tables that this version of the crate needs.
pub const VERSION: i32 = 1;

/// The SQL that makes the tables: what [`sql`] returns.
pub const SQL: &str = include_str!("schema/install.sql");

/// Looks for the table of the version.
const IS_THERE: &str = "SELECT pg_catalog.to_regclass('latchwork.schema_version') IS NOT NULL";

/// Reads the version, and whether all tables are there.
const READ: &str = "SELECT v.version, \
     pg_catalog.to_regclass('latchwork.rate_limits') IS NOT NULL \
     AND pg_catalog.to_regclass('latchwork.idempotency') IS NOT NULL \
     AND pg_catalog.to_regclass('latchwork.ticks') IS NOT NULL \
     FROM latchwork.schema_version AS v";

/// The SQL that makes the tables, as one statement. It may run inside a transaction of a migration tool, or on its own;
/// twice, beside others, and where the tables are there already.
///
/// # Examples
///
/// ```
/// let migration = latchwork_postgres::schema::sql();
/// assert!(migration.contains("CREATE UNLOGGED TABLE latchwork.rate_limits"));
/// ```
#[must_use]
pub const fn sql() -> &'static str {
    SQL
}

/// Makes the tables that are missing, and brings older ones up to date. Newer ones are left alone.
///
/// # Cancel safety
///
/// Dropped midway, it leaves either all or nothing: it is one transaction.
///
/// # Errors
///
/// [`SchemaError::Forbidden`] if the role may not create them, [`SchemaError::Newer`] if a newer version has made them,
/// [`SchemaError::Server`] otherwise.
pub async fn install(client: &Client) -> Result<(), SchemaError> {
    client.batch_execute(SQL).await.map_err(SchemaError::from_driver)?;
    check(client).await?.require()
}

/// Finds out which version of the tables is there.
///
/// # Cancel safety
///
/// May be dropped at any time; it only reads.
///
/// # Errors
///
/// [`SchemaError::Forbidden`] if the role may not look, [`SchemaError::Server`] otherwise. What was found is no error
/// before [`SchemaState::require`] makes it one.
///
/// # Examples
///
/// ```no_run
/// # use latchwork_postgres::schema;
/// # async fn start(client: &tokio_postgres::Client) -> Result<(), schema::SchemaError> {
/// // Fails at the start with words that say what to do, instead of with the first request.
/// schema::check(client).await?.require()?;
/// # Ok(())
/// # }
/// ```
pub async fn check(client: &Client) -> Result<SchemaState, SchemaError> {
    // Not to be found out from an error, which would stand in the server's log at each start.
    let is_there = client
        .query_one(IS_THERE, &[])
        .await
        .map_err(SchemaError::from_driver)?;
    if !is_there.get::<_, bool>(0) {
        return Ok(SchemaState::Missing);
    }
    let read = client.query_opt(READ, &[]).await.map_err(SchemaError::from_driver)?;
    Ok(read.map_or(SchemaState::Missing, |row| SchemaState::judge(row.get(0), row.get(1))))
}
