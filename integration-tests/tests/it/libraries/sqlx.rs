use latchwork_core::xact::{KeySet, XactOptions};
use latchwork_sqlx::LockedTransactionExt as _;
use sqlx::{PgPool, PgTransaction, postgres::PgPoolOptions};

use super::{Ending, Library, Work};

#[derive(Debug)]
pub(super) struct Sqlx(PgPool);

impl Sqlx {
    pub(super) fn connect(url: &str) -> Self {
        Self(PgPoolOptions::new().max_connections(16).connect_lazy(url).unwrap())
    }
}

impl Library for Sqlx {
    fn locked(&self, keys: KeySet, options: XactOptions, work: Work) -> Ending<()> {
        let pool = self.0.clone();
        Box::pin(async move {
            let body = async move |_: &mut PgTransaction<'_>| {
                work.await;
                Ok(())
            };
            pool.locked_transaction(keys, options, body).await
        })
    }

    fn tried(&self, keys: KeySet, work: Work) -> Ending<bool> {
        let pool = self.0.clone();
        Box::pin(async move {
            let body = async move |_: &mut PgTransaction<'_>| {
                work.await;
                Ok(())
            };
            Ok(pool.try_locked_transaction(keys, body).await?.is_some())
        })
    }
}
