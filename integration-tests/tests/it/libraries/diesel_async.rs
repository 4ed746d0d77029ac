use std::{fmt, num::NonZeroU32, time::Duration};

use diesel::connection::CacheSize;
use diesel_async::{
    AsyncConnection as _, AsyncPgConnection, SimpleAsyncConnection as _,
    pooled_connection::{AsyncDieselConnectionManager, ManagerConfig, RecyclingMethod, bb8, deadpool},
};
use futures_util::FutureExt as _;
use latchwork_core::{
    Key, Mode,
    fence::Fence,
    xact::{FencedLimits, KeySet, XactOptions},
};
use latchwork_diesel_async::{LockedTransactionExt as _, XactLockExt as _};

use super::{Body, Doing, Ending, Failure, LONG, Library, Locking, Tx, Way};

type Manager = AsyncDieselConnectionManager<AsyncPgConnection>;

/// Behind a pooler, as the crate's documentation says.
fn manager(way: &Way) -> Manager {
    let mut config = ManagerConfig::default();
    if !way.prepares {
        config.recycling_method = RecyclingMethod::Fast;
        config.custom_setup = Box::new(|url| {
            let url = url.to_owned();
            async move {
                // It prepares as it connects, and fails if another client comes in between.
                let mut connection = loop {
                    if let Ok(connection) = AsyncPgConnection::establish(&url).await {
                        break connection;
                    }
                };
                connection.set_prepared_statement_cache_size(CacheSize::Disabled);
                Ok(connection)
            }
            .boxed()
        });
    }
    AsyncDieselConnectionManager::new_with_config(&way.url, config)
}

macro_rules! library_on {
    ($name:ident, $pool:ty, |$way:ident, $size:ident| $connect:expr, $get:ident) => {
        pub(super) struct $name($pool);

        impl $name {
            pub(super) fn connect($way: &Way, $size: u32) -> Self {
                Self($connect)
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(stringify!($name))
            }
        }

        impl Library for $name {
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
                    let body = async |tx: &mut AsyncPgConnection| body.run(&mut View(tx)).await;
                    pool.retrying_locked_transaction(keys, options, attempts, body)
                        .await
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
                    let mut connection = pool.$get().await.map_err(Failure::library)?;
                    View(&mut connection).nested(body).await
                })
            }

            fn alone(&self, sql: String) -> Doing<'static> {
                let pool = self.0.clone();
                Box::pin(async move {
                    let mut connection = pool.$get().await.map_err(Failure::library)?;
                    View(&mut connection).run(&sql).await
                })
            }

            fn lock_alone(&self, key: Key) -> Option<Locking<'static, ()>> {
                let pool = self.0.clone();
                Some(Box::pin(async move {
                    pool.$get().await.unwrap().xact_lock(key).within(LONG).await
                }))
            }
        }
    };
}

library_on!(
    OnDeadpool,
    deadpool::Pool<AsyncPgConnection>,
    |way, size| deadpool::Pool::builder(manager(way))
        .max_size(size as usize)
        .build()
        .unwrap(),
    get
);
library_on!(
    OnBb8,
    bb8::Pool<AsyncPgConnection>,
    |way, size| {
        let pool = bb8::Pool::builder().max_size(size).connection_timeout(LONG);
        pool.test_on_check_out(way.prepares).build_unchecked(manager(way))
    },
    get_owned
);

struct View<'a>(&'a mut AsyncPgConnection);

impl Tx for View<'_> {
    takes_locks!(Box::pin);

    fn run<'t>(&'t mut self, sql: &'t str) -> Doing<'t> {
        Box::pin(async move { self.0.batch_execute(sql).await.map_err(Failure::library) })
    }

    fn nested(&mut self, body: Body) -> Doing<'_> {
        Box::pin(async move { self.0.transaction(async |tx| body.run(&mut View(tx)).await).await })
    }
}
