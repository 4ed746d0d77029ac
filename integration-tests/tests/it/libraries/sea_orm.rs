use latchwork_core::xact::{KeySet, XactOptions};
use latchwork_sea_orm::LockedTransactionExt as _;
use sea_orm::{DatabaseConnection, DatabaseTransaction, sqlx::postgres::PgPoolOptions};

use super::{Ending, Library, Work};

#[derive(Debug)]
pub(super) struct SeaOrm(DatabaseConnection);

impl SeaOrm {
    pub(super) fn connect(url: &str) -> Self {
        Self(
            PgPoolOptions::new()
                .max_connections(16)
                .connect_lazy(url)
                .unwrap()
                .into(),
        )
    }
}

impl Library for SeaOrm {
    fn locked(&self, keys: KeySet, options: XactOptions, work: Work) -> Ending<()> {
        let database = self.0.clone();
        Box::pin(async move {
            let body = async move |_: &DatabaseTransaction| {
                work.await;
                Ok(())
            };
            database.locked_transaction(keys, options, body).await
        })
    }

    fn tried(&self, keys: KeySet, work: Work) -> Ending<bool> {
        let database = self.0.clone();
        Box::pin(async move {
            let body = async move |_: &DatabaseTransaction| {
                work.await;
                Ok(())
            };
            Ok(database.try_locked_transaction(keys, body).await?.is_some())
        })
    }
}
