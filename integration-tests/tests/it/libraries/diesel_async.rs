use std::fmt;

use diesel_async::{
    AsyncPgConnection,
    pooled_connection::{AsyncDieselConnectionManager, deadpool::Pool},
};
use latchwork_core::xact::{KeySet, XactOptions};
use latchwork_diesel_async::LockedTransactionExt as _;

use super::{Ending, Library, Work};

pub(super) struct DieselAsync(Pool<AsyncPgConnection>);

impl DieselAsync {
    pub(super) fn connect(url: &str) -> Self {
        let pool = Pool::builder(AsyncDieselConnectionManager::new(url));
        Self(pool.max_size(16).build().unwrap())
    }
}

impl fmt::Debug for DieselAsync {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("DieselAsync")
    }
}

impl Library for DieselAsync {
    fn locked(&self, keys: KeySet, options: XactOptions, work: Work) -> Ending<()> {
        let pool = self.0.clone();
        Box::pin(async move {
            let body = async move |_: &mut AsyncPgConnection| {
                work.await;
                Ok(())
            };
            pool.locked_transaction(keys, options, body).await
        })
    }

    fn tried(&self, keys: KeySet, work: Work) -> Ending<bool> {
        let pool = self.0.clone();
        Box::pin(async move {
            let body = async move |_: &mut AsyncPgConnection| {
                work.await;
                Ok(())
            };
            Ok(pool.try_locked_transaction(keys, body).await?.is_some())
        })
    }
}
