//! A transaction whose connection goes to one blocking thread after the other.

use std::{convert::Infallible, error::Error, sync::Arc, time::Duration};

use diesel::{PgConnection, QueryableByName, RunQueryDsl as _, sql_query, sql_types::Bool};
use latchwork_core::xact::{LockedError, ServerSide};
use latchwork_http::tx::TxError;
use tokio::{
    runtime::Handle,
    sync::{Mutex, OwnedMutexGuard},
    time::{Instant, timeout, timeout_at},
};
use tracing::{Instrument as _, warn};

use super::{PgPool, open::Open};
use crate::{blocking::on_blocking_thread, commit::commit, state};

/// Dropped, it is rolled back in a task, behind whatever still runs on the connection.
pub(super) struct Shared {
    /// Locked by the thread that works on it, to the end of its closure, whoever waits for that. Empty once the
    /// transaction has ended.
    open: Arc<Mutex<Option<Open>>>,
    server_side: ServerSide,
    pool: PgPool,
    answer_within: Duration,
    /// What is dropped on another thread is rolled back all the same.
    runtime: Handle,
    /// COMMIT is on its way, and must not be stopped: the server may carry it out.
    is_committing: bool,
}

type Cause = Box<dyn Error + Send + Sync>;

impl Shared {
    pub(super) fn new(open: Open, pool: PgPool, answer_within: Duration) -> Self {
        let server_side = open.server_side.clone();
        Self {
            open: Arc::new(Mutex::new(Some(open))),
            server_side,
            pool,
            answer_within,
            runtime: Handle::current(),
            is_committing: false,
        }
    }

    pub(super) const fn answer_within(&self) -> Duration {
        self.answer_within
    }

    pub(super) async fn run<T: Send + 'static>(&self, body: impl FnOnce(&mut PgConnection) -> T + Send + 'static) -> T {
        let mut open = Arc::clone(&self.open).lock_owned().await;
        on_blocking_thread(move || body(&mut open.as_mut().expect(PRESENT).connection)).await
    }

    /// Commits, behind what the handler has left running if that ends in time. COMMIT is one message, which the server
    /// carries out whoever leaves meanwhile.
    pub(super) async fn commit(mut self) -> Result<(), TxError> {
        let until = Instant::now() + self.answer_within;
        let Ok(mut open) = timeout_at(until, Arc::clone(&self.open).lock_owned()).await else {
            // It was not sent. Dropped, this is rolled back.
            return Err(TxError::aborted(
                "a closure of the handler still runs on the transaction",
            ));
        };
        self.is_committing = true;
        let committing = on_blocking_thread(move || {
            let mut open = open.take().expect(PRESENT);
            // A statement of the handler's has told: nothing was stored, and there is nobody to send COMMIT to.
            state::depth(&mut open.connection).map_err(TxError::unavailable)?;
            commit(&mut open.connection).map_err(from_end)
        });
        timeout_at(until, committing).await.map_err(TxError::outcome_unknown)?
    }

    pub(super) async fn roll_back(self) -> Result<(), Cause> {
        // In a task, so that leaving does not stop it midway.
        self.runtime.spawn(self.clearing()).await?
    }

    fn clearing(&self) -> impl Future<Output = Result<(), Cause>> + Send + use<> {
        let open = Arc::clone(&self.open);
        let (pool, limit, server_side) = (self.pool.clone(), self.answer_within, self.server_side.clone());
        clear(open, pool, limit, server_side).in_current_span()
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        let has_ended = self.open.try_lock().is_ok_and(|open| open.is_none());
        if !has_ended && !self.is_committing {
            // A runtime that has ended drops the task, which closes the connection.
            drop(self.runtime.spawn(self.clearing()));
        }
    }
}

fn from_end(error: LockedError<Infallible>) -> TxError {
    match error {
        LockedError::OutcomeUnknown(cause) => TxError::outcome_unknown(cause),
        LockedError::Aborted(cause) => TxError::aborted(cause),
        error => TxError::other(error),
    }
}

/// Rolls back behind whatever the connection is still busy with.
///
/// A statement that was abandoned runs on in the server, with the locks of its transaction. So after the limit its
/// session is ended, which ends the statement, and then the connection.
async fn clear(
    open: Arc<Mutex<Option<Open>>>,
    pool: PgPool,
    limit: Duration,
    server_side: ServerSide,
) -> Result<(), Cause> {
    let cleared = async {
        roll_back(open.lock_owned().await).await;
    };
    let mut cleared = Box::pin(cleared);
    let Err(elapsed) = timeout(limit, &mut cleared).await else {
        return Ok(());
    };
    let pid = server_side.pid();
    let terminated = on_blocking_thread(move || terminate(&pool, limit, &server_side)).await;
    if let Err(error) = terminated {
        let error: &dyn Error = &*error;
        warn!(target: "latchwork::diesel", error, pid, "a statement that was abandoned may still run, and hold its lock");
    }
    // Now that the session has ended, so does what runs on it.
    cleared.await;
    Err(elapsed.into())
}

async fn roll_back(mut open: OwnedMutexGuard<Option<Open>>) {
    if let Some(ended) = open.take() {
        on_blocking_thread(move || ended.roll_back()).await;
    }
}

/// Has another connection end a session, if it is still in that transaction.
fn terminate(pool: &PgPool, limit: Duration, server_side: &ServerSide) -> Result<(), Cause> {
    let mut other = pool.get_timeout(limit)?;
    let _: Vec<Ended> = sql_query(server_side.terminate()).load(&mut other)?;
    Ok(())
}

#[derive(QueryableByName)]
struct Ended {
    #[diesel(sql_type = Bool)]
    #[expect(dead_code, reason = "a session that has ended meanwhile is as good")]
    ended: bool,
}

/// Whoever ends it has it by value.
const PRESENT: &str = "a transaction is there until it ends";
