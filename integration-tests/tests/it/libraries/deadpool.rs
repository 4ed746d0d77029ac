use std::{num::NonZeroU32, time::Duration};

use deadpool_postgres::{Manager, Pool, Transaction};
use latchwork_core::{
    Key, Mode,
    fence::Fence,
    xact::{FencedLimits, KeySet, XactOptions},
};
use latchwork_postgres::transaction::{LockedTransactionExt as _, PooledTx, XactLockExt};
use tokio_postgres::{Error, NoTls};

use super::{Body, Doing, Ending, Failure, LONG, Library, Locking, Tx, Way};

#[derive(Debug)]
pub(super) struct Deadpool(Pool);

impl Deadpool {
    pub(super) fn connect(way: &Way, size: u32) -> Self {
        let manager = Manager::new(way.url.parse().unwrap(), NoTls);
        Self(Pool::builder(manager).max_size(size as usize).build().unwrap())
    }
}

impl Library for Deadpool {
    fn locked(&self, keys: KeySet, options: XactOptions, body: Body) -> Ending<()> {
        let pool = self.0.clone();
        Box::pin(async move {
            pool.locked_transaction(keys, options, async |tx| body.run(&mut View(tx)).await)
                .await
        })
    }

    fn tried(&self, keys: KeySet, body: Body) -> Ending<bool> {
        let pool = self.0.clone();
        Box::pin(async move {
            let done = pool.try_locked_transaction(keys, async |tx| body.run(&mut View(tx)).await);
            Ok(done.await?.is_some())
        })
    }

    fn retried(&self, keys: KeySet, options: XactOptions, attempts: NonZeroU32, body: Body) -> Ending<()> {
        let pool = self.0.clone();
        Box::pin(async move {
            let body = async |tx: &PooledTx| body.run(&mut View(tx)).await;
            pool.retrying_locked_transaction(keys, options, attempts, body).await
        })
    }

    fn fenced(&self, fence: Fence, limits: FencedLimits, limit: Duration, body: Body) -> Ending<()> {
        let pool = self.0.clone();
        Box::pin(async move {
            pool.fenced_transaction(&fence, limits, limit, async |tx| body.run(&mut View(tx)).await)
                .await
        })
    }

    fn plain(&self, body: Body) -> Doing<'static> {
        let pool = self.0.clone();
        Box::pin(async move {
            let mut client = pool.get().await.map_err(Failure::library)?;
            let tx = client.transaction().await.map_err(Failure::library)?;
            body.run(&mut View(&tx)).await?;
            tx.commit().await.map_err(Failure::library)
        })
    }

    fn alone(&self, sql: String) -> Doing<'static> {
        let pool = self.0.clone();
        Box::pin(async move {
            let client = pool.get().await.map_err(Failure::library)?;
            client.batch_execute(&sql).await.map_err(Failure::library)
        })
    }

    fn lock_alone(&self, _: Key) -> Option<Locking<'static, ()>> {
        None
    }
}

struct View<'a, C>(&'a C);

trait RunsSql: XactLockExt + Sync {
    fn runs(&self, sql: &str) -> impl Future<Output = Result<(), Error>> + Send;
}

impl RunsSql for PooledTx {
    fn runs(&self, sql: &str) -> impl Future<Output = Result<(), Error>> + Send {
        self.batch_execute(sql)
    }
}

impl RunsSql for Transaction<'_> {
    fn runs(&self, sql: &str) -> impl Future<Output = Result<(), Error>> + Send {
        self.batch_execute(sql)
    }
}

impl<C: RunsSql> Tx for View<'_, C> {
    takes_locks!(Box::pin);

    fn run<'t>(&'t mut self, sql: &'t str) -> Doing<'t> {
        Box::pin(async move { self.0.runs(sql).await.map_err(Failure::library) })
    }

    fn nested(&mut self, body: Body) -> Doing<'_> {
        Box::pin(async move {
            self.run("SAVEPOINT one").await?;
            let done = body.run(self).await;
            let end = if done.is_ok() { "RELEASE one" } else { "ROLLBACK TO one" };
            self.run(end).await?;
            done
        })
    }
}
