use std::{
    future::{Ready, ready},
    num::NonZeroU32,
    panic::resume_unwind,
    pin::Pin,
    time::Duration,
};

use diesel::{
    Connection, PgConnection,
    connection::{CacheSize, SimpleConnection as _, TransactionManager as _},
    r2d2::{ConnectionManager, CustomizeConnection, Pool, PooledConnection},
    result::Error,
};
use latchwork_core::{
    Key, Mode,
    fence::Fence,
    xact::{FencedLimits, KeySet, XactOptions},
};
use latchwork_diesel::{LockedTransactionExt as _, XactLockExt as _};
use tokio::{runtime::Handle, task::spawn_blocking};

use super::{Body, Doing, Ending, Failure, LONG, Library, Locking, Tx, Way};

type Manager = ConnectionManager<PgConnection>;
type Pooled = PooledConnection<Manager>;

#[derive(Debug)]
pub(super) struct Diesel(Pool<Manager>);

impl Diesel {
    pub(super) fn connect(way: &Way, size: u32) -> Self {
        let mut pool = Pool::builder().max_size(size).min_idle(Some(0));
        if !way.prepares {
            pool = pool.connection_customizer(Box::new(KeepsNothingPrepared));
        }
        Self(pool.build_unchecked(Manager::new(&way.url)))
    }

    /// On a thread that diesel may block; the body's other work is still the runtime's.
    fn blocking<T: Send + 'static>(
        &self,
        does: impl FnOnce(&mut Pooled) -> T + Send + 'static,
    ) -> Pin<Box<dyn Future<Output = T> + Send>> {
        let pool = self.0.clone();
        Box::pin(async move {
            match spawn_blocking(move || does(&mut pool.get().unwrap())).await {
                Ok(done) => done,
                Err(error) => resume_unwind(error.into_panic()),
            }
        })
    }
}

#[derive(Debug)]
struct KeepsNothingPrepared;

impl CustomizeConnection<PgConnection, diesel::r2d2::Error> for KeepsNothingPrepared {
    fn on_acquire(&self, connection: &mut PgConnection) -> Result<(), diesel::r2d2::Error> {
        connection.set_prepared_statement_cache_size(CacheSize::Disabled);
        Ok(())
    }
}

impl Library for Diesel {
    fn locked(&self, keys: KeySet, options: XactOptions, body: Body) -> Ending<()> {
        self.blocking(|conn| conn.locked_transaction(keys, options, runs(body)))
    }

    fn tried(&self, keys: KeySet, body: Body) -> Ending<bool> {
        self.blocking(|conn| Ok(conn.try_locked_transaction(keys, runs(body))?.is_some()))
    }

    fn retried(&self, keys: KeySet, options: XactOptions, attempts: NonZeroU32, body: Body) -> Ending<()> {
        self.blocking(move |conn| conn.retrying_locked_transaction(keys, options, attempts, runs(body)))
    }

    fn fenced(&self, fence: Fence, limits: FencedLimits, limit: Duration, body: Body) -> Ending<()> {
        self.blocking(move |conn| conn.fenced_transaction(&fence, limits, limit, runs(body)))
    }

    fn plain(&self, body: Body) -> Doing<'static> {
        self.blocking(|conn| conn.transaction(runs(body)))
    }

    fn alone(&self, sql: String) -> Doing<'static> {
        self.blocking(move |conn| conn.batch_execute(&sql).map_err(Failure::library))
    }

    fn lock_alone(&self, key: Key) -> Option<Locking<'static, ()>> {
        Some(self.blocking(move |conn| conn.xact_lock(key).within(LONG)))
    }

    fn blocks(&self) -> bool {
        true
    }
}

fn runs(body: Body) -> impl FnOnce(&mut Pooled) -> Result<(), Failure> + Clone {
    move |conn| Handle::current().block_on(body.run(&mut View(conn)))
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        Self::library(error)
    }
}

struct View<'a>(&'a mut Pooled);

type Depth = <Pooled as Connection>::TransactionManager;

impl Tx for View<'_> {
    takes_locks!(done);

    fn run<'t>(&'t mut self, sql: &'t str) -> Doing<'t> {
        done(self.0.batch_execute(sql).map_err(Failure::library))
    }

    /// As `Connection::transaction`, whose closure could not await.
    fn nested(&mut self, body: Body) -> Doing<'_> {
        Box::pin(async move {
            Depth::begin_transaction(self.0)?;
            let done = body.run(&mut View(self.0)).await;
            if done.is_ok() {
                Depth::commit_transaction(self.0)?;
            } else {
                Depth::rollback_transaction(self.0)?;
            }
            done
        })
    }
}

fn done<T>(done: T) -> Pin<Box<Ready<T>>> {
    Box::pin(ready(done))
}
