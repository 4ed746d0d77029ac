use std::{num::NonZeroU32, time::Duration};

use latchwork_core::{
    Key, Mode,
    fence::Fence,
    xact::{FencedLimits, KeySet, XactOptions},
};
use latchwork_sea_orm::{LockedTransactionExt as _, XactLockExt as _};
use sea_orm::{
    ConnectionTrait as _, DatabaseConnection, DatabaseExecutor, DatabaseTransaction, TransactionTrait as _,
    sqlx::postgres::PgPoolOptions,
};

use super::{Body, Doing, Ending, Failure, LONG, Library, Locking, Tx, Way};

#[derive(Debug)]
pub(super) struct SeaOrm(DatabaseConnection);

impl SeaOrm {
    pub(super) fn connect(way: &Way, size: u32) -> Self {
        let pool = PgPoolOptions::new().max_connections(size).connect_lazy(&way.url);
        Self(pool.unwrap().into())
    }
}

impl Library for SeaOrm {
    fn locked(&self, keys: KeySet, options: XactOptions, body: Body) -> Ending<()> {
        let db = self.0.clone();
        Box::pin(async move {
            db.locked_transaction(keys, options, async |tx| body.run(&mut View(tx)).await)
                .await
        })
    }

    fn tried(&self, keys: KeySet, body: Body) -> Ending<bool> {
        let db = self.0.clone();
        Box::pin(async move {
            let done = db.try_locked_transaction(keys, async |tx| body.run(&mut View(tx)).await);
            Ok(done.await?.is_some())
        })
    }

    fn retried(&self, keys: KeySet, options: XactOptions, attempts: NonZeroU32, body: Body) -> Ending<()> {
        let db = self.0.clone();
        Box::pin(async move {
            let body = async |tx: &DatabaseTransaction| body.run(&mut View(tx)).await;
            db.retrying_locked_transaction(keys, options, attempts, body).await
        })
    }

    fn fenced(&self, fence: Fence, limits: FencedLimits, limit: Duration, body: Body) -> Ending<()> {
        let db = self.0.clone();
        Box::pin(async move {
            db.fenced_transaction(&fence, limits, limit, async |tx| body.run(&mut View(tx)).await)
                .await
        })
    }

    fn plain(&self, body: Body) -> Doing<'static> {
        let db = self.0.clone();
        Box::pin(async move {
            let tx = db.begin().await.map_err(Failure::library)?;
            ends(tx, body).await
        })
    }

    fn alone(&self, sql: String) -> Doing<'static> {
        let db = self.0.clone();
        Box::pin(async move { db.execute_unprepared(&sql).await.map(drop).map_err(Failure::library) })
    }

    fn lock_alone(&self, key: Key) -> Option<Locking<'static, ()>> {
        let db = self.0.clone();
        Some(Box::pin(async move {
            DatabaseExecutor::from(&db).xact_lock(key).within(LONG).await
        }))
    }
}

struct View<'a>(&'a DatabaseTransaction);

impl Tx for View<'_> {
    takes_locks!(Box::pin);

    fn run<'t>(&'t mut self, sql: &'t str) -> Doing<'t> {
        Box::pin(async move { self.0.execute_unprepared(sql).await.map(drop).map_err(Failure::library) })
    }

    fn nested(&mut self, body: Body) -> Doing<'_> {
        Box::pin(async move { ends(self.0.begin().await.map_err(Failure::library)?, body).await })
    }
}

async fn ends(tx: DatabaseTransaction, body: Body) -> Result<(), Failure> {
    let done = body.run(&mut View(&tx)).await;
    if done.is_ok() {
        return tx.commit().await.map_err(Failure::library);
    }
    // The body's error is the one to tell.
    drop(tx.rollback().await);
    done
}
