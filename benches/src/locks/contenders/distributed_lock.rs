use std::{fmt, time::Duration};

use distributed_lock_core::traits::{DistributedLock as _, LockHandle, LockProvider};
use distributed_lock_postgres::{PostgresLockProvider, lock::PostgresDistributedLock};
use sqlx_08::postgres::PgPoolOptions;

use crate::{
    Failure,
    locks::contender::{Contender, Stopwatch, Task},
};

/// The crate distributed-lock-postgres, with session locks.
pub(crate) struct DistributedLock(PostgresLockProvider);

impl DistributedLock {
    pub(crate) async fn connect(url: &str, connections: usize) -> Result<Self, Failure> {
        let pool = PgPoolOptions::new()
            .max_connections(u32::try_from(connections)?)
            // No statement when a connection changes hands.
            .test_before_acquire(false)
            .acquire_timeout(Duration::from_secs(30))
            .connect(url)
            .await?;
        Ok(Self(PostgresLockProvider::builder().pool(pool).build().await?))
    }
}

impl Contender for DistributedLock {
    type Task = DistributedTask;

    fn task(&self, key: i64) -> DistributedTask {
        DistributedTask(self.0.create_lock(&format!("bench-lock-{key}")))
    }
}

pub(crate) struct DistributedTask(PostgresDistributedLock);

impl Task for DistributedTask {
    async fn cycle(&mut self, watch: &mut Stopwatch) -> Result<(), Failure> {
        let handle = self.0.try_acquire().await?;
        watch.acquired(handle.is_some())?;
        if let Some(handle) = handle {
            // A dropped handle would leave the key locked on a connection of the pool.
            handle.release().await?;
        }
        Ok(())
    }
}

impl fmt::Debug for DistributedLock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DistributedLock").finish_non_exhaustive()
    }
}
