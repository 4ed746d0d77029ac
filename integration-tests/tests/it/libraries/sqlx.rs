use std::{num::NonZeroU32, time::Duration};

use latchwork_core::{
    Key, Mode,
    fence::Fence,
    xact::{FencedLimits, KeySet, XactOptions},
};
use latchwork_sqlx::{LockedTransactionExt as _, XactLockExt as _};
use sqlx::{AssertSqlSafe, Connection as _, PgConnection, PgPool, PgTransaction, postgres::PgPoolOptions, raw_sql};

use super::{Body, Doing, Ending, Failure, LONG, Library, Locking, Tx, Way};

#[derive(Debug)]
pub(super) struct Sqlx(PgPool);

impl Sqlx {
    pub(super) fn connect(way: &Way, size: u32) -> Self {
        let pool = PgPoolOptions::new().max_connections(size).connect_lazy(&way.url);
        Self(pool.unwrap())
    }
}

impl Library for Sqlx {
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
            let body = async |tx: &mut PgTransaction<'_>| body.run(&mut View(tx)).await;
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
            let tx = pool.begin().await.map_err(Failure::library)?;
            ends(tx, body).await
        })
    }

    fn alone(&self, sql: String) -> Doing<'static> {
        let pool = self.0.clone();
        Box::pin(async move {
            let mut connection = pool.acquire().await.map_err(Failure::library)?;
            View(&mut connection).run(&sql).await
        })
    }

    fn lock_alone(&self, key: Key) -> Option<Locking<'static, ()>> {
        let pool = self.0.clone();
        Some(Box::pin(async move {
            pool.acquire().await.unwrap().xact_lock(key).within(LONG).await
        }))
    }
}

struct View<'a>(&'a mut PgConnection);

impl Tx for View<'_> {
    takes_locks!(Box::pin);

    fn run<'t>(&'t mut self, sql: &'t str) -> Doing<'t> {
        let sql = raw_sql(AssertSqlSafe(sql.to_owned()));
        Box::pin(async move { sql.execute(&mut *self.0).await.map(drop).map_err(Failure::library) })
    }

    fn nested(&mut self, body: Body) -> Doing<'_> {
        Box::pin(async move { ends(self.0.begin().await.map_err(Failure::library)?, body).await })
    }
}

async fn ends(mut tx: PgTransaction<'_>, body: Body) -> Result<(), Failure> {
    let done = body.run(&mut View(&mut tx)).await;
    if done.is_ok() {
        return tx.commit().await.map_err(Failure::library);
    }
    // The body's error is the one to tell.
    drop(tx.rollback().await);
    done
}
