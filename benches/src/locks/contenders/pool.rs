use std::fmt;

use deadpool_postgres::{Manager, ManagerConfig, Pool, RecyclingMethod};
use tokio_postgres::NoTls;

use super::{TRY, UNLOCK};
use crate::{
    Failure,
    locks::contender::{Contender, Stopwatch, Task},
};

/// A pooled connection for each lock, for as long as it is held.
pub(crate) struct Pooled(Pool);

impl Pooled {
    pub(crate) fn new(url: &str, connections: usize) -> Result<Self, Failure> {
        // The fastest way that deadpool has: no statement when a connection changes hands.
        let config = ManagerConfig {
            recycling_method: RecyclingMethod::Fast,
        };
        let manager = Manager::from_config(url.parse()?, NoTls, config);
        Ok(Self(Pool::builder(manager).max_size(connections).build()?))
    }
}

impl Contender for Pooled {
    type Task = PooledTask;

    fn task(&self, key: i64) -> PooledTask {
        PooledTask {
            pool: self.0.clone(),
            key,
        }
    }
}

pub(crate) struct PooledTask {
    pool: Pool,
    key: i64,
}

impl Task for PooledTask {
    async fn cycle(&mut self, watch: &mut Stopwatch) -> Result<(), Failure> {
        let connection = self.pool.get().await?;
        let attempt = connection.prepare_cached(TRY).await?;
        watch.acquired(connection.query_one(&attempt, &[&self.key]).await?.get(0))?;
        let unlock = connection.prepare_cached(UNLOCK).await?;
        let unlocked: bool = connection.query_one(&unlock, &[&self.key]).await?.get(0);
        if unlocked {
            Ok(())
        } else {
            Err("the lock was not held".into())
        }
    }
}

impl fmt::Debug for Pooled {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Pooled").field(&self.0.status()).finish()
    }
}
