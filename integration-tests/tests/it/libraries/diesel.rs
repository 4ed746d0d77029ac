use std::convert::Infallible;

use diesel::{
    PgConnection,
    r2d2::{ConnectionManager, Pool, PooledConnection},
};
use latchwork_core::xact::{KeySet, LockedError, XactOptions};
use latchwork_diesel::LockedTransactionExt as _;
use tokio::{runtime::Handle, task::spawn_blocking};

use super::{Ending, Library, Work};

type Manager = ConnectionManager<PgConnection>;

#[derive(Debug)]
pub(super) struct Diesel(Pool<Manager>);

impl Diesel {
    pub(super) fn connect(url: &str) -> Self {
        let pool = Pool::builder().max_size(16).min_idle(Some(0));
        Self(pool.build_unchecked(Manager::new(url)))
    }

    /// On a thread that diesel may block; the work is still the runtime's.
    fn blocking<T: Send + 'static>(
        &self,
        transaction: impl FnOnce(&mut PooledConnection<Manager>) -> Result<T, LockedError<Infallible>> + Send + 'static,
    ) -> Ending<T> {
        let pool = self.0.clone();
        Box::pin(async move {
            let transaction = spawn_blocking(move || transaction(&mut pool.get().unwrap()));
            transaction.await.unwrap()
        })
    }
}

impl Library for Diesel {
    fn locked(&self, keys: KeySet, options: XactOptions, work: Work) -> Ending<()> {
        self.blocking(|conn| conn.locked_transaction(keys, options, |_| does(work)))
    }

    fn tried(&self, keys: KeySet, work: Work) -> Ending<bool> {
        self.blocking(|conn| {
            let done = conn.try_locked_transaction(keys, |_| does(work))?;
            Ok(done.is_some())
        })
    }
}

/// On a thread that diesel blocks anyway.
fn does(work: Work) -> Result<(), Infallible> {
    Handle::current().block_on(work);
    Ok(())
}
