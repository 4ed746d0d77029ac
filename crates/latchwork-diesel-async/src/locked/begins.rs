//! Where a locked transaction can be begun, and how it goes on from there.

use std::error::Error as StdError;
use std::future::Future;

use diesel_async::AsyncPgConnection;
#[cfg(feature = "bb8")]
use diesel_async::pooled_connection::bb8;
#[cfg(feature = "deadpool")]
use diesel_async::pooled_connection::deadpool;
use latchwork_core::xact::{LockedError, XactWait};

use super::TransactionBody;
use crate::{
    end::{Cause, Ends},
    lent::Lent,
    state,
    wait::{self, First},
};
#[cfg(any(feature = "deadpool", feature = "bb8"))]
use crate::{
    pool::Pool,
    pooled::{OpenError, OpenTransaction},
    wait::CLEARED_WITHIN,
};

#[expect(unnameable_types, reason = "nobody else can implement a trait that they cannot name")]
pub trait Begins: Send + Sized {
    /// Begins, waits for the locks, runs the body and ends; `None` if a wait that was one attempt has lost.
    fn transact<T, E, F>(
        &mut self,
        wait: impl Fn() -> XactWait + Send + Sync,
        body: F,
    ) -> impl Future<Output = Result<Option<T>, LockedError<E>>> + Send
    where
        F: for<'r> TransactionBody<&'r mut AsyncPgConnection, T, E>,
        T: Send,
        E: Send;

    /// As [`transact`](Self::transact), with a wait that loses with an error.
    fn locked<T, E, F>(
        &mut self,
        wait: impl Fn() -> XactWait + Send + Sync,
        body: F,
    ) -> impl Future<Output = Result<T, LockedError<E>>> + Send
    where
        F: for<'r> TransactionBody<&'r mut AsyncPgConnection, T, E>,
        T: Send,
        E: Send,
    {
        async move {
            let done = self.transact(wait, body).await?;
            Ok(done.expect("a wait that is not granted ends with an error"))
        }
    }
}

#[cfg(feature = "deadpool")]
impl Begins for &deadpool::Pool<AsyncPgConnection> {
    async fn transact<T, E, F>(
        &mut self,
        wait: impl Fn() -> XactWait + Send + Sync,
        body: F,
    ) -> Result<Option<T>, LockedError<E>>
    where
        F: for<'r> TransactionBody<&'r mut AsyncPgConnection, T, E>,
        T: Send,
        E: Send,
    {
        on_pool(Pool::Deadpool(self.clone()), wait, body).await
    }
}

#[cfg(feature = "bb8")]
impl Begins for &bb8::Pool<AsyncPgConnection> {
    async fn transact<T, E, F>(
        &mut self,
        wait: impl Fn() -> XactWait + Send + Sync,
        body: F,
    ) -> Result<Option<T>, LockedError<E>>
    where
        F: for<'r> TransactionBody<&'r mut AsyncPgConnection, T, E>,
        T: Send,
        E: Send,
    {
        on_pool(Pool::Bb8(self.clone()), wait, body).await
    }
}

#[cfg(any(feature = "deadpool", feature = "bb8"))]
async fn on_pool<T, E, F>(
    pool: Pool,
    wait: impl Fn() -> XactWait + Send + Sync,
    body: F,
) -> Result<Option<T>, LockedError<E>>
where
    F: for<'r> TransactionBody<&'r mut AsyncPgConnection, T, E>,
{
    match OpenTransaction::open(&pool, CLEARED_WITHIN, wait).await {
        Ok((open, wait)) => run(open, wait, body).await,
        Err(OpenError::Begin(cause)) => Err(LockedError::Begin(cause)),
        Err(OpenError::Lock(error)) => Err(LockedError::Lock(error)),
    }
}

impl Begins for &mut AsyncPgConnection {
    async fn transact<T, E, F>(
        &mut self,
        wait: impl Fn() -> XactWait + Send + Sync,
        body: F,
    ) -> Result<Option<T>, LockedError<E>>
    where
        F: for<'r> TransactionBody<&'r mut AsyncPgConnection, T, E>,
        T: Send,
        E: Send,
    {
        match state::depth(self) {
            Ok(0) => {}
            Ok(_) => return Err(LockedError::Begin(IN_TRANSACTION.into())),
            Err(error) => return Err(LockedError::Begin(error.into())),
        }
        let mut lent = Lent::new(self);
        let mut wait = wait();
        match wait::first(lent.connection(), &mut wait).await {
            Ok(First::Ours(_)) => run(lent, wait, body).await,
            Ok(First::NotOurs(cause)) => {
                settle(lent).await;
                Err(LockedError::Begin(cause))
            }
            Err(error) => {
                settle(lent).await;
                Err(LockedError::Lock(error))
            }
        }
    }
}

/// Runs what is left of a wait, then the body, and ends the transaction.
async fn run<S, T, E, F>(mut transaction: S, mut wait: XactWait, body: F) -> Result<Option<T>, LockedError<E>>
where
    S: Ends,
    F: for<'r> TransactionBody<&'r mut AsyncPgConnection, T, E>,
{
    match wait::go_on(transaction.connection(), &mut wait).await {
        Ok(true) => {}
        Ok(false) => {
            settle(transaction).await;
            return Ok(None);
        }
        Err(error) => {
            settle(transaction).await;
            return Err(error.into());
        }
    }
    match body(transaction.connection()).await {
        Ok(value) => {
            transaction.commit().await?;
            Ok(Some(value))
        }
        Err(error) => {
            settle(transaction).await;
            Err(LockedError::Body(error))
        }
    }
}

/// Rolls back on the way to another error. What goes wrong here is undone with the connection.
async fn settle(transaction: impl Ends) {
    let rolled_back: Result<(), Cause> = transaction.roll_back().await;
    if let Err(error) = rolled_back {
        let error: &dyn StdError = &*error;
        tracing::debug!(target: "latchwork::diesel_async", error, "a transaction was not rolled back in order");
    }
}

const IN_TRANSACTION: &str = "a transaction is open on this connection; take the lock in it with xact_lock";
