//! diesel_migrations, which blocks its thread, and so does the guard.

use diesel::{Connection as _, PgConnection};
use diesel_migrations::{EmbeddedMigrations, MigrationHarness as _, embed_migrations};
use latchwork::postgres::{PostgresOptions, blocking::BlockingLocks};

use crate::{Failure, LOCK, PATIENCE};

const MIGRATIONS: EmbeddedMigrations = embed_migrations!("migrations/diesel");

pub(crate) fn migrate(url: &str) -> Result<(), Failure> {
    let locks = BlockingLocks::connect(url.parse()?, PostgresOptions::default())?;
    locks.migrate(LOCK, PATIENCE, || {
        let mut connection = PgConnection::establish(url)?;
        connection.run_pending_migrations(MIGRATIONS)?;
        Ok(())
    })?
}
