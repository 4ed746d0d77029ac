//! sqlx's migrate.

use latchwork::Locks;
use sqlx::{PgPool, migrate::Migrator};

use crate::{Failure, LOCK, PATIENCE};

static MIGRATIONS: Migrator = sqlx::migrate!("migrations/sqlx");

pub(crate) async fn migrate(locks: Locks, url: &str) -> Result<(), Failure> {
    let pool = PgPool::connect(url).await?;
    locks.migrate(LOCK, PATIENCE, MIGRATIONS.run(&pool)).await?;
    Ok(())
}
