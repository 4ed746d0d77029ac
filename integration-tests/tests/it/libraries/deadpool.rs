use deadpool_postgres::{Manager, Pool};
use latchwork_core::xact::{KeySet, XactOptions};
use latchwork_postgres::transaction::{LockedTransactionExt as _, PooledTx};
use tokio_postgres::NoTls;

use super::{Ending, Library, Work};

#[derive(Debug)]
pub(super) struct Deadpool(Pool);

impl Deadpool {
    pub(super) fn connect(url: &str) -> Self {
        let manager = Manager::new(url.parse().unwrap(), NoTls);
        Self(Pool::builder(manager).max_size(16).build().unwrap())
    }
}

impl Library for Deadpool {
    fn locked(&self, keys: KeySet, options: XactOptions, work: Work) -> Ending<()> {
        let pool = self.0.clone();
        Box::pin(async move {
            let body = async move |_: &PooledTx| {
                work.await;
                Ok(())
            };
            pool.locked_transaction(keys, options, body).await
        })
    }

    fn tried(&self, keys: KeySet, work: Work) -> Ending<bool> {
        let pool = self.0.clone();
        Box::pin(async move {
            let body = async move |_: &PooledTx| {
                work.await;
                Ok(())
            };
            Ok(pool.try_locked_transaction(keys, body).await?.is_some())
        })
    }
}
