use std::{fmt, future::Future, ops::Deref, time::Duration};

use deadpool_postgres::Object;
use latchwork_core::xact::ServerSide;
use tokio::{
    runtime::Handle,
    time::{error::Elapsed, sleep, timeout},
};
use tokio_postgres::{Client, Error, SimpleQueryRow, Statement};
use tracing::warn;

use crate::transaction::{XactLockExt, sealed::HasClient};

/// An open transaction on a connection of a pool, which it gives back when it has ended in order. Dropped, it closes
/// its connection; a statement that the server then runs on for too long is ended together with its session.
///
/// It is a `tokio_postgres::Client` for everything but transactions: its `transaction()` would COMMIT this one, and
/// needs a `&mut Client`, which there is none of. Nor may statements end it: a COMMIT or ROLLBACK of the handler's is
/// found out at the end and reported as an outcome that is not known. For a savepoint send `SAVEPOINT`.
///
/// More locks of transaction scope can be taken on it with [`XactLockExt`].
///
/// ```compile_fail,E0596
/// async fn handler(mut tx: latchwork_postgres::transaction::PooledTx) {
///     let nested = tx.transaction().await;
/// }
/// ```
#[must_use = "dropping it closes its connection"]
pub struct PooledTx {
    /// `None` only while it is dropped.
    client: Option<Object>,
    answer_within: Duration,
    /// `None` until it has begun.
    server_side: Option<ServerSide>,
}

impl PooledTx {
    pub(super) const fn new(client: Object, answer_within: Duration) -> Self {
        Self {
            client: Some(client),
            answer_within,
            server_side: None,
        }
    }

    /// Prepares a statement, or takes it from those that the connection keeps prepared, as deadpool's own transactions do.
    ///
    /// # Errors
    ///
    /// Those of the driver.
    pub async fn prepare_cached(&self, query: &str) -> Result<Statement, Error> {
        self.client.as_ref().expect(PRESENT).prepare_cached(query).await
    }

    /// Remembers the row with which a transaction has begun.
    pub(super) fn has_begun(&mut self, row: &SimpleQueryRow) {
        self.server_side = server_side(row);
    }

    pub(super) async fn in_time<T>(&self, answer: impl Future<Output = T>) -> Result<T, Elapsed> {
        timeout(self.answer_within, answer).await
    }

    /// Closes the connection, and has another of its pool end what it has left running in the server.
    pub(super) async fn terminate(mut self) {
        if let Some(terminating) = self.closes() {
            terminating.await;
        }
    }

    /// Closes the connection, and says how what it has left running in the server is ended.
    fn closes(&mut self) -> Option<impl Future<Output = ()> + Send + use<>> {
        let client = self.client.take()?;
        let (pool, limit) = (Object::pool(&client), self.answer_within);
        // First, for a pool of one connection. Out of its pool, it is closed when it is dropped.
        drop(Object::take(client));
        let (pool, server_side) = (pool?, self.server_side.take()?);
        Some(async move {
            let terminates = async {
                let other = pool.get().await.ok()?;
                other.simple_query(&server_side.terminate()).await.ok()
            };
            if !matches!(timeout(limit, terminates).await, Ok(Some(_))) {
                warn!(target: "latchwork::postgres", pid = server_side.pid(), "a statement of a request that has ended may still run, and hold its lock");
            }
        })
    }

    /// Has a query that is sent now go on in the server once it has begun there, whatever becomes of this. It may have to wait
    /// for a statement that was abandoned before.
    pub(super) fn spares(&mut self, query: &'static str) {
        self.server_side = self.server_side.take().map(|server_side| server_side.sparing(query));
    }

    /// Gives the connection back to its pool.
    pub(super) fn reuse(mut self) {
        drop(self.client.take());
    }
}

impl Deref for PooledTx {
    type Target = Client;

    fn deref(&self) -> &Client {
        self.client.as_ref().expect(PRESENT)
    }
}

impl HasClient for PooledTx {
    fn driver_client(&self) -> &Client {
        self
    }
}

impl XactLockExt for PooledTx {}

impl Drop for PooledTx {
    fn drop(&mut self) {
        let limit = self.answer_within;
        if let (Some(terminating), Ok(runtime)) = (self.closes(), Handle::try_current()) {
            // The server rolls back in a moment, unless a statement runs on.
            runtime.spawn(async move {
                sleep(limit).await;
                terminating.await;
            });
        }
    }
}

impl fmt::Debug for PooledTx {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PooledTx").finish_non_exhaustive()
    }
}

/// What the row with which a transaction has begun tells of it.
fn server_side(row: &SimpleQueryRow) -> Option<ServerSide> {
    Some(ServerSide::new(row.get(3)?.parse().ok()?, row.get(1)?))
}

const PRESENT: &str = "a connection is there until it is dropped";
