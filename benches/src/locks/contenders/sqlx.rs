use std::time::Duration;

use sqlx::{
    Either, PgPool,
    postgres::{PgAdvisoryLock, PgAdvisoryLockKey, PgPoolOptions},
};

use crate::{
    Failure,
    locks::contender::{Contender, Stopwatch, Task},
};

/// The advisory lock of sqlx, on a connection of its pool.
#[derive(Debug)]
pub(crate) struct Sqlx(PgPool);

impl Sqlx {
    pub(crate) async fn connect(url: &str, connections: usize) -> Result<Self, Failure> {
        let options = PgPoolOptions::new()
            .max_connections(u32::try_from(connections)?)
            // No statement when a connection changes hands.
            .test_before_acquire(false)
            .acquire_timeout(Duration::from_secs(30));
        Ok(Self(options.connect(url).await?))
    }
}

impl Contender for Sqlx {
    type Task = SqlxTask;

    fn task(&self, key: i64) -> SqlxTask {
        SqlxTask {
            pool: self.0.clone(),
            lock: PgAdvisoryLock::with_key(PgAdvisoryLockKey::BigInt(key)),
        }
    }
}

#[derive(Debug)]
pub(crate) struct SqlxTask {
    pool: PgPool,
    lock: PgAdvisoryLock,
}

impl Task for SqlxTask {
    async fn cycle(&mut self, watch: &mut Stopwatch) -> Result<(), Failure> {
        let attempt = self.lock.try_acquire(self.pool.acquire().await?).await?;
        watch.acquired(attempt.is_left())?;
        if let Either::Left(guard) = attempt {
            guard.release_now().await?;
        }
        Ok(())
    }
}
