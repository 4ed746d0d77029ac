//! Pools of connections, and their connections.

use std::ops::{Deref, DerefMut};

use diesel_async::AsyncPgConnection;
#[cfg(feature = "bb8")]
use diesel_async::pooled_connection::bb8;
#[cfg(feature = "deadpool")]
use diesel_async::pooled_connection::deadpool;
use tokio::runtime::Handle;

use crate::end::Cause;
#[cfg(feature = "bb8")]
use crate::state;

/// A pool of diesel-async's connections.
#[derive(Clone)]
pub(crate) enum Pool {
    #[cfg(feature = "deadpool")]
    Deadpool(deadpool::Pool<AsyncPgConnection>),
    #[cfg(feature = "bb8")]
    Bb8(bb8::Pool<AsyncPgConnection>),
}

enum Connection {
    #[cfg(feature = "deadpool")]
    Deadpool(deadpool::Object<AsyncPgConnection>),
    #[cfg(feature = "bb8")]
    Bb8(bb8::PooledConnection<'static, AsyncPgConnection>),
}

impl Pool {
    pub(crate) async fn get(&self) -> Result<Pooled, Cause> {
        let connection = match self {
            #[cfg(feature = "deadpool")]
            Self::Deadpool(pool) => Connection::Deadpool(pool.get().await?),
            #[cfg(feature = "bb8")]
            Self::Bb8(pool) => Connection::Bb8(pool.get_owned().await?),
        };
        Ok(Pooled {
            connection: Some(connection),
            runtime: Handle::current(),
        })
    }
}

/// A connection of a pool, which is closed when this is dropped without [`reuse`](Self::reuse).
pub(crate) struct Pooled {
    /// `None` only while it is dropped.
    connection: Option<Connection>,
    /// A pool may replace what is closed, in a task.
    runtime: Handle,
}

impl Pooled {
    /// The runtime that it was asked for on.
    pub(crate) const fn runtime(&self) -> &Handle {
        &self.runtime
    }

    /// Gives it back to its pool.
    pub(crate) fn reuse(mut self) {
        let _entered = self.runtime.enter();
        drop(self.connection.take());
    }
}

impl Deref for Pooled {
    type Target = AsyncPgConnection;

    fn deref(&self) -> &AsyncPgConnection {
        match self.connection.as_ref().expect(PRESENT) {
            #[cfg(feature = "deadpool")]
            Connection::Deadpool(connection) => connection,
            #[cfg(feature = "bb8")]
            Connection::Bb8(connection) => connection,
        }
    }
}

impl DerefMut for Pooled {
    fn deref_mut(&mut self) -> &mut AsyncPgConnection {
        match self.connection.as_mut().expect(PRESENT) {
            #[cfg(feature = "deadpool")]
            Connection::Deadpool(connection) => connection,
            #[cfg(feature = "bb8")]
            Connection::Bb8(connection) => connection,
        }
    }
}

impl Drop for Pooled {
    fn drop(&mut self) {
        let Some(connection) = self.connection.take() else {
            return;
        };
        let _entered = self.runtime.enter();
        match connection {
            #[cfg(feature = "deadpool")]
            Connection::Deadpool(connection) => drop(deadpool::Object::take(connection)),
            // It closes what is broken, and has no other way to be told.
            #[cfg(feature = "bb8")]
            Connection::Bb8(mut connection) => state::spoil(&mut connection),
        }
    }
}

const PRESENT: &str = "a connection is there until it is dropped";
