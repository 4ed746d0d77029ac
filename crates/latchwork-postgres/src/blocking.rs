//! Locks of session scope for services without async: the same locks, with calls that block.
//!
//! One thread of a runtime of its own keeps the sessions. A call must not come from async code: it would block that
//! runtime's thread, and Tokio panics.
//!
//! # Examples
//!
//! ```no_run
//! use std::time::Duration;
//! use latchwork_postgres::{Config, PostgresOptions, blocking::BlockingLocks};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let locks = BlockingLocks::connect(Config::from_env()?, PostgresOptions::default())?;
//! let guard = locks.acquire("nightly-billing", Duration::from_secs(5))?;
//! // Nobody else is at the billing now.
//! guard.release()?;
//! # Ok(())
//! # }
//! ```

use std::{fmt, io, sync::Arc, time::Duration};

use latchwork_core::{
    AcquireError, CloseError, Guard, HoldState, Key, Locks, Mode, ReleaseError, WaitMethod, key::IntoKey,
};
use tokio::runtime::{Builder, Runtime};

use crate::{Config, ConnectError, Postgres, PostgresOptions};

/// Acquires locks on PostgreSQL with calls that block. Clones share the sessions.
#[derive(Clone)]
pub struct BlockingLocks {
    locks: Locks,
    runtime: Arc<Runtime>,
}

/// Why there are no locks.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BlockingError {
    /// The system gives no thread.
    #[error("no thread can be started for the sessions")]
    Thread(#[from] io::Error),
    /// The server can't be reached, or was refused.
    #[error(transparent)]
    Connect(#[from] ConnectError),
}

impl BlockingLocks {
    /// Connects, checks the server, and starts the thread.
    ///
    /// # Errors
    ///
    /// [`BlockingError::Connect`], as [`Postgres::connect`] has it; [`BlockingError::Thread`].
    ///
    /// # Panics
    ///
    /// In async code.
    pub fn connect(config: Config, options: PostgresOptions) -> Result<Self, BlockingError> {
        let runtime = Builder::new_multi_thread()
            .worker_threads(1)
            .thread_name("latchwork")
            .enable_all()
            .build()?;
        let postgres = runtime.block_on(Postgres::connect(config, options))?;
        Ok(Self {
            locks: postgres.locks(),
            runtime: Arc::new(runtime),
        })
    }

    /// Waits for a key, for at most `limit`; zero is one attempt.
    ///
    /// # Errors
    ///
    /// See [`AcquireError`].
    ///
    /// # Panics
    ///
    /// In async code.
    pub fn acquire(&self, key: impl IntoKey, limit: Duration) -> Result<BlockingGuard, AcquireError> {
        self.wait(key, Mode::Exclusive, limit)
    }

    /// Waits to share a key with other shared holders, for at most `limit`.
    ///
    /// # Errors
    ///
    /// See [`AcquireError`].
    ///
    /// # Panics
    ///
    /// In async code.
    pub fn acquire_shared(&self, key: impl IntoKey, limit: Duration) -> Result<BlockingGuard, AcquireError> {
        self.wait(key, Mode::Shared, limit)
    }

    /// Tries once to acquire a key: `Ok(None)` if others hold it.
    ///
    /// # Errors
    ///
    /// See [`AcquireError`].
    ///
    /// # Panics
    ///
    /// In async code.
    pub fn try_acquire(&self, key: impl IntoKey) -> Result<Option<BlockingGuard>, AcquireError> {
        let tried = self.locks.try_acquire(key);
        let granted = self.runtime.block_on(tried)?;
        Ok(granted.map(|guard| self.guard(guard)))
    }

    /// Runs the work of a migration tool under a lock that is waited for by polling, so that a `CREATE INDEX CONCURRENTLY`
    /// in it ends although others wait. The lock is given up on every path, a panic included.
    ///
    /// For diesel_migrations the work is `connection.run_pending_migrations(MIGRATIONS)`, and a migration is outside of a
    /// transaction if its `metadata.toml` has `run_in_transaction = false`. The package `migrations` among latchwork's
    /// examples has it in two processes at once.
    ///
    /// # Errors
    ///
    /// The [`AcquireError`] of the lock; what the work says is its own result.
    ///
    /// # Panics
    ///
    /// In async code.
    ///
    /// # Examples
    ///
    /// ```no_run
    /// # use std::time::Duration;
    /// # use latchwork_postgres::blocking::BlockingLocks;
    /// # struct Migrations;
    /// # impl Migrations { fn run(&self) -> Result<(), std::io::Error> { Ok(()) } }
    /// # fn example(locks: BlockingLocks, migrations: Migrations) -> Result<(), Box<dyn std::error::Error>> {
    /// locks.migrate("migrations", Duration::from_secs(300), || migrations.run())??;
    /// # Ok(())
    /// # }
    /// ```
    pub fn migrate<T>(&self, key: impl IntoKey, limit: Duration, work: impl FnOnce() -> T) -> Result<T, AcquireError> {
        let waits = self.locks.acquire(key).wait_by(WaitMethod::Poll).within(limit);
        // Given up by its drop, whatever the work does.
        let _guard = self.guard(self.runtime.block_on(waits)?);
        Ok(work())
    }

    /// Closes as [`Locks::close_within`] does.
    ///
    /// # Errors
    ///
    /// [`CloseError`] with the number of guards that were left.
    ///
    /// # Panics
    ///
    /// In async code.
    pub fn close_within(&self, limit: Duration) -> Result<(), CloseError> {
        self.runtime.block_on(self.locks.close_within(limit))
    }

    fn wait(&self, key: impl IntoKey, mode: Mode, limit: Duration) -> Result<BlockingGuard, AcquireError> {
        let waits = self.locks.acquire(key).mode(mode).within(limit);
        Ok(self.guard(self.runtime.block_on(waits)?))
    }

    fn guard(&self, guard: Guard) -> BlockingGuard {
        BlockingGuard {
            guard,
            runtime: Arc::clone(&self.runtime),
        }
    }
}

impl fmt::Debug for BlockingLocks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BlockingLocks")
            .field("locks", &self.locks)
            .finish_non_exhaustive()
    }
}

/// A held key. Dropping it gives the key up without blocking.
#[must_use = "the key is given up when the guard is dropped"]
#[derive(Debug)]
pub struct BlockingGuard {
    guard: Guard,
    /// The sessions live as long as anything is held on them.
    runtime: Arc<Runtime>,
}

impl BlockingGuard {
    /// The key that is held.
    #[must_use]
    pub const fn key(&self) -> Key {
        self.guard.key()
    }

    /// Whether the key can be believed to be held right now. Never blocks.
    #[must_use]
    pub fn is_held(&self) -> bool {
        self.guard.is_held()
    }

    /// How far the hold can be believed right now. Never blocks.
    #[must_use]
    pub fn state(&self) -> HoldState {
        self.guard.state()
    }

    /// Gives the key up and says whether it was held to the end.
    ///
    /// # Errors
    ///
    /// See [`ReleaseError`]. In both cases the key is no longer held.
    ///
    /// # Panics
    ///
    /// In async code.
    pub fn release(self) -> Result<(), ReleaseError> {
        let Self { guard, runtime } = self;
        runtime.block_on(guard.release())
    }
}
