//! Locked transactions of a pool, for async code.

use std::{future::Future, sync::Arc};

use latchwork_core::xact::{KeySet, LockedError, XactOptions};

use crate::{
    blocking::on_blocking_thread,
    locked::{locked_while, try_locked_while},
};

/// Locked transactions for async code, each on a blocking thread of Tokio's and a connection of the pool. Implemented
/// for the r2d2 pools of diesel; nobody else can.
///
/// A transaction has its thread from when it asks for a connection until it has ended. The pool's own
/// `connection_timeout` says how long it waits for one.
///
/// # Cancel safety
///
/// The future may be dropped at any time, and nothing is left held. Before the body runs, it never will: what waits for a
/// connection or a lock stops at the next occasion, which for a lock is within about 1 second, and gives the connection
/// back. Once the body runs nothing stops it: it goes on to its end, is committed or rolled back as it says, and the
/// connection goes back then. Nobody is told what came of it.
pub trait LockedPoolExt: sealed::Pools {
    /// Runs the body in a transaction that has its locks, as
    /// [`LockedTransactionExt::locked_transaction`](crate::LockedTransactionExt::locked_transaction) on a connection of the pool.
    ///
    /// # Cancel safety
    ///
    /// See [above](Self#cancel-safety).
    ///
    /// # Errors
    ///
    /// As there; also [`LockedError::Begin`] if the pool has no connection in time.
    ///
    /// # Panics
    ///
    /// If the body does. The transaction is rolled back.
    ///
    /// # Examples
    ///
    /// ```no_run
    /// use std::time::Duration;
    ///
    /// use diesel::{PgConnection, RunQueryDsl, r2d2::{ConnectionManager, Pool}, result::Error, sql_query};
    /// use latchwork_diesel::{Key, LockedError, LockedPoolExt as _, XactOptions};
    ///
    /// # async fn example(pool: Pool<ConnectionManager<PgConnection>>) -> Result<(), LockedError<Error>> {
    /// let options = XactOptions::within(Duration::from_secs(2));
    /// pool.locked_transaction(Key::bigint(42), options, |conn| {
    ///     sql_query("UPDATE orders SET paid = true WHERE id = 42").execute(conn)
    /// })
    /// .await?;
    /// # Ok(())
    /// # }
    /// ```
    fn locked_transaction<T, E, F>(
        &self,
        keys: impl Into<KeySet>,
        options: XactOptions,
        body: F,
    ) -> impl Future<Output = Result<T, LockedError<E>>> + Send
    where
        T: Send + 'static,
        E: Send + 'static,
        F: FnOnce(&mut Self::Connection) -> Result<T, E> + Send + 'static,
    {
        let keys = keys.into();
        let done = transact(self, move |conn, is_wanted| {
            locked_while(conn, keys, &options, is_wanted, body)
        });
        async move { Ok(done.await?.expect(WANTED)) }
    }

    /// Does the same if all of the keys are free, with exclusive locks; `Ok(None)` if others have one of them. Nothing
    /// but a connection is waited for.
    ///
    /// # Cancel safety
    ///
    /// See [above](Self#cancel-safety).
    ///
    /// # Errors
    ///
    /// As [`locked_transaction`](Self::locked_transaction), never
    /// [`TimedOut`](crate::XactLockError::TimedOut).
    ///
    /// # Panics
    ///
    /// If the body does. The transaction is rolled back.
    fn try_locked_transaction<T, E, F>(
        &self,
        keys: impl Into<KeySet>,
        body: F,
    ) -> impl Future<Output = Result<Option<T>, LockedError<E>>> + Send
    where
        T: Send + 'static,
        E: Send + 'static,
        F: FnOnce(&mut Self::Connection) -> Result<T, E> + Send + 'static,
    {
        let keys = keys.into();
        transact(self, move |conn, is_wanted| {
            try_locked_while(conn, keys, is_wanted, body)
        })
    }
}

impl<P: sealed::Pools> LockedPoolExt for P {}

mod sealed {
    use diesel::r2d2::{ManageConnection, Pool, PooledConnection};
    use latchwork_core::xact::LockedError;

    use crate::LockedTransactionExt;

    #[expect(unnameable_types, reason = "nobody else can implement a trait that they cannot name")]
    pub trait Pools: Clone + Send + 'static {
        type Connection: LockedTransactionExt;

        fn connection<E>(&self) -> Result<Self::Connection, LockedError<E>>;
    }

    impl<M> Pools for Pool<M>
    where
        M: ManageConnection,
        PooledConnection<M>: LockedTransactionExt,
    {
        type Connection = PooledConnection<M>;

        fn connection<E>(&self) -> Result<PooledConnection<M>, LockedError<E>> {
            self.get().map_err(|error| LockedError::Begin(error.into()))
        }
    }
}

/// Runs a transaction on a connection of the pool. It is told whether anybody still waits for it.
fn transact<P, T, E>(
    pool: &P,
    transaction: impl FnOnce(&mut P::Connection, &dyn Fn() -> bool) -> Result<Option<T>, LockedError<E>> + Send + 'static,
) -> impl Future<Output = Result<Option<T>, LockedError<E>>> + Send
where
    P: sealed::Pools,
    T: Send + 'static,
    E: Send + 'static,
{
    let pool = pool.clone();
    async move {
        let waits = Arc::new(());
        let watched = Arc::downgrade(&waits);
        on_blocking_thread(move || {
            let is_wanted = || watched.strong_count() > 0;
            if !is_wanted() {
                return Ok(None);
            }
            let mut connection = pool.connection()?;
            // It may have been waited for.
            if !is_wanted() {
                return Ok(None);
            }
            transaction(&mut connection, &is_wanted)
        })
        .await
    }
}

/// Whoever is told is there to want it.
const WANTED: &str = "a transaction that is waited for has run";
