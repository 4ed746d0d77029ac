//! Work that must be done by one process while all others wait: migrations of the database.

use std::{future::Future, time::Duration};

use crate::{
    acquire::WaitMethod,
    error::{AcquireError, Lost},
    key::IntoKey,
    locks::Locks,
};

/// Why a migration did not end well. `E` is the migration tool's own error.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum MigrateError<E> {
    /// The lock was not granted. The work did not begin.
    #[error(transparent)]
    Lock(#[from] AcquireError),
    /// The lock was lost, and the work dropped midway: another process may be at it by now.
    #[error(transparent)]
    Lost(#[from] Lost),
    /// The migration tool's own error.
    #[error(transparent)]
    Work(E),
}

impl Locks {
    /// Runs the work of a migration tool, one process after the other: whoever comes second finds it done.
    ///
    /// The lock is waited for by polling, so that a `CREATE INDEX CONCURRENTLY` in the work ends although others wait: it
    /// waits for all statements that had begun before it, also for one that waits for a lock. The lock is given up on
    /// every path: the end of the work, its error, a panic, or this future dropped.
    ///
    /// The work is dropped midway if the lock is lost. A tool that takes an advisory lock of its own, such as sqlx's, does
    /// so as a second one, which nobody else waits for then.
    ///
    /// | tool | the work | a migration outside of a transaction, as `CREATE INDEX CONCURRENTLY` has to be |
    /// |---|---|---|
    /// | sqlx | `sqlx::migrate!().run(&pool)` | its file begins with `-- no-transaction` |
    /// | sea-orm-migration | `Migrator::up(&database, None)` | `use_transaction` of its `MigrationTrait` is `Some(false)` |
    /// | refinery | `migrations::runner().run_async(&mut client)` | it has none |
    /// | diesel_migrations | `connection.run_pending_migrations(MIGRATIONS)`, in the `migrate` of latchwork-postgres' `BlockingLocks` | its `metadata.toml` has `run_in_transaction = false` |
    ///
    /// The package `migrations` among latchwork's examples has each of them in two processes at once.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future drops the work and gives the lock up.
    ///
    /// # Errors
    ///
    /// [`MigrateError`].
    ///
    /// # Examples
    ///
    /// ```
    /// use std::time::Duration;
    /// # use latchwork_core::{Locks, migrate::MigrateError};
    /// # async fn migrations() -> Result<(), std::io::Error> { Ok(()) }
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), MigrateError<std::io::Error>> {
    /// # let locks = Locks::in_memory();
    /// // Such as `sqlx::migrate!().run(&pool)`.
    /// locks.migrate("migrations", Duration::from_secs(300), migrations()).await?;
    /// # Ok(())
    /// # }
    /// ```
    pub async fn migrate<T, E>(
        &self,
        key: impl IntoKey,
        limit: Duration,
        work: impl Future<Output = Result<T, E>>,
    ) -> Result<T, MigrateError<E>> {
        let guard = self.acquire(key).wait_by(WaitMethod::Poll).within(limit).await?;
        let done = guard.run(work).await?.map_err(MigrateError::Work)?;
        // What is done is done, whatever becomes of the release.
        let _ = guard.release().await;
        Ok(done)
    }
}
