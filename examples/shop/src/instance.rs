//! What an instance of the shop makes once and its requests share.

use std::time::Duration;

use deadpool_postgres::{Manager, ManagerConfig, Pool, RecyclingMethod, Runtime};
use latchwork::{
    Config, Locks, Postgres, PostgresOptions,
    postgres::{RateOptions, transaction::OnRuntime},
    rate::RateLimits,
};
use tokio::time::timeout;

use crate::{failure::Failure, tables};

/// One instance of the shop. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Shop {
    /// For the transactions of requests, which keep a connection for as long as their handler runs.
    pub transactions: Pool,
    /// For single statements: they need not wait until a transaction has ended.
    pub pool: Pool,
    /// Locks and slots. They are on a connection of their own: none of the pool is tied up by them.
    pub locks: Locks,
    /// Rate limits, on another connection of their own.
    pub rates: RateLimits,
    /// Tells this instance from the others, and from those before.
    pub instance: String,
}

impl Shop {
    /// Connects, and makes the tables that are not there yet.
    ///
    /// # Errors
    ///
    /// Fails when the database cannot be reached or used.
    pub async fn open(config: Config) -> Result<Self, Failure> {
        let transactions = pool(&config, 20)?;
        let pool = pool(&config, 5)?;
        // It looks at the server first, and says what to do if there is something wrong with it.
        let postgres = Postgres::connect(config, PostgresOptions::default()).await?;
        tables::make(&pool).await?;
        Ok(Self {
            transactions,
            pool,
            locks: postgres.locks(),
            rates: postgres.rate_limits(RateOptions::default()),
            instance: postgres.identity().to_string(),
        })
    }

    /// Gives up what is held, and ends all connections; each step takes at most the limit.
    ///
    /// # Cancel safety
    ///
    /// Dropped midway, it leaves the rest to the end of the process.
    pub async fn close(self, limit: Duration) {
        if timeout(limit, self.rates.close()).await.is_err() {
            tracing::warn!("the rate limits did not close in time");
        }
        if let Err(error) = self.locks.close_within(limit).await {
            tracing::warn!("the locks did not close in order: {error}");
        }
        self.transactions.close();
        self.pool.close();
    }
}

fn pool(config: &Config, size: usize) -> Result<Pool, Failure> {
    let recycling_method = RecyclingMethod::Fast;
    let tls = config.tls_connector()?;
    // Not on the runtime of whichever worker of actix-web has asked first.
    let connect = OnRuntime::current(tls);
    let manager = Manager::from_connect(config.to_tokio_postgres(), connect, ManagerConfig { recycling_method });
    Ok(Pool::builder(manager)
        .max_size(size)
        // A request that finds no connection is answered, and does not pile up behind the others.
        .runtime(Runtime::Tokio1)
        .timeouts(deadpool_postgres::Timeouts::wait_millis(WAIT_MS))
        .build()?)
}

const WAIT_MS: u64 = 5_000;
