//! A transaction on a connection of a pool.

use std::{future::Future, time::Duration};

use diesel_async::AsyncPgConnection;
use latchwork_core::xact::{ServerSide, XactLockError, XactWait};
use tokio::time::timeout;
use tracing::{Instrument as _, warn};

use crate::{
    end::{self, CLEAR_AWAY, Cause, CommitError, Ends},
    pool::{Pool, Pooled},
    state,
    wait::{self, First, batch},
};

/// An open transaction that owns its connection. Dropped, it is rolled back in a task, and its connection goes back to the
/// pool when that is done; if it is not done in time, the connection is closed and its session ended.
pub(crate) struct OpenTransaction {
    /// `None` only while it ends.
    connection: Option<Pooled>,
    pool: Pool,
    answer_within: Duration,
    /// `None` until the server has told it.
    server_side: Option<ServerSide>,
    /// COMMIT is sent, and the transaction may have ended with it or not.
    is_committing: bool,
}

/// Why no transaction was begun, or none with its first request for the lock.
#[derive(Debug)]
pub(crate) enum OpenError {
    Begin(Cause),
    Lock(XactLockError),
}

impl OpenTransaction {
    /// Begins, and sends the first statement of a wait. How long an end may take is for `answer_within` to say.
    ///
    /// May be dropped at any time: what is begun is rolled back.
    pub(crate) async fn open(
        pool: &Pool,
        answer_within: Duration,
        wait: impl Fn() -> XactWait,
    ) -> Result<(Self, XactWait), OpenError> {
        let mut connection = pool.get().await.map_err(OpenError::Begin)?;
        if !matches!(state::depth(&mut connection), Ok(0)) {
            // One of `begin_test_transaction`, which pools keep.
            connection.reuse();
            return Err(OpenError::Begin(IN_TRANSACTION.into()));
        }
        state::begin(&mut connection);
        let mut this = Self {
            connection: Some(connection),
            pool: pool.clone(),
            answer_within,
            server_side: None,
            is_committing: false,
        };
        let mut was_refused = false;
        loop {
            let mut wait = wait();
            match wait::first(this.as_connection(), &mut wait).await {
                Ok(First::Ours(server_side)) => {
                    this.server_side = Some(server_side);
                    return Ok((this, wait));
                }
                // What somebody has left open on the connection is not ours to commit.
                Ok(First::NotOurs(cause)) => match batch(this.as_connection(), "ROLLBACK").await {
                    Ok(()) if !was_refused => was_refused = true,
                    _ => {
                        drop(this.connection.take());
                        return Err(OpenError::Begin(cause));
                    }
                },
                Err(error) => {
                    // It is rolled back all the same if this fails.
                    drop(this.roll_back().await);
                    return Err(OpenError::Lock(error));
                }
            }
        }
    }

    pub(crate) fn as_connection(&self) -> &AsyncPgConnection {
        self.connection.as_ref().expect(PRESENT)
    }

    #[cfg(feature = "http")]
    pub(crate) const fn answer_within(&self) -> Duration {
        self.answer_within
    }

    fn clearing(&mut self) -> Option<impl Future<Output = Result<(), Cause>> + Send + use<>> {
        let connection = self.connection.take()?;
        let (pool, limit, server_side) = (self.pool.clone(), self.answer_within, self.server_side.take());
        let statements: &[_] = if self.is_committing { &CLEAR_AWAY } else { &["ROLLBACK"] };
        Some(clear(connection, statements, pool, limit, server_side).in_current_span())
    }
}

impl Ends for OpenTransaction {
    fn connection(&mut self) -> &mut AsyncPgConnection {
        self.connection.as_mut().expect(PRESENT)
    }

    async fn commit(mut self) -> Result<(), CommitError> {
        // It is one message, which the server carries out whoever leaves meanwhile.
        self.is_committing = true;
        let ended = end::commit(self.connection()).await;
        if let Some(mut connection) = self.connection.take()
            && !matches!(ended, Err(CommitError::Unknown(_)))
        {
            state::reset(&mut connection);
            connection.reuse();
        }
        ended
    }

    async fn roll_back(mut self) -> Result<(), Cause> {
        let runtime = self.connection.as_ref().expect(PRESENT).runtime().clone();
        match self.clearing() {
            Some(clearing) => runtime.spawn(clearing).await?,
            None => Ok(()),
        }
    }
}

impl Drop for OpenTransaction {
    fn drop(&mut self) {
        let Some(connection) = &self.connection else { return };
        let runtime = connection.runtime().clone();
        if let Some(clearing) = self.clearing() {
            // A runtime that has ended drops it, which closes the connection.
            drop(runtime.spawn(clearing));
        }
    }
}

/// Rolls back behind whatever the connection is still busy with.
///
/// A statement that was abandoned runs on in the server, with the locks of its transaction. So after the limit the
/// connection is closed, and the session that it leaves behind is ended.
async fn clear(
    mut connection: Pooled,
    statements: &'static [&'static str],
    pool: Pool,
    limit: Duration,
    server_side: Option<ServerSide>,
) -> Result<(), Cause> {
    let cleared = async {
        let mut last = Ok(());
        for statement in statements {
            last = batch(&connection, statement).await;
        }
        last
    };
    match timeout(limit, cleared).await {
        Ok(Ok(())) => {
            state::reset(&mut connection);
            connection.reuse();
            Ok(())
        }
        Ok(Err(error)) => Err(error.into()),
        Err(elapsed) => {
            // First, for a pool of one connection.
            drop(connection);
            if let Some(server_side) = server_side {
                terminate(&pool, limit, &server_side).await;
            }
            Err(elapsed.into())
        }
    }
}

/// Has another connection end a session, if it is still in that transaction.
async fn terminate(pool: &Pool, limit: Duration, server_side: &ServerSide) {
    let terminate = server_side.terminate();
    let terminates = async {
        let other = pool.get().await?;
        batch(&other, &terminate).await?;
        other.reuse();
        Ok::<_, Cause>(())
    };
    if !matches!(timeout(limit, terminates).await, Ok(Ok(()))) {
        warn!(target: "latchwork::diesel_async", pid = server_side.pid(), "a statement that was abandoned may still run, and hold its lock");
    }
}

/// Whoever ends it has it by value.
const PRESENT: &str = "a transaction is there until it ends";
const IN_TRANSACTION: &str = "the pool's connection is in a transaction; take the lock in it with xact_lock";
