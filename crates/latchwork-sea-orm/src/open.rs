use std::{
    fmt::Display,
    ops::Deref,
    panic::{AssertUnwindSafe, catch_unwind},
    time::{Duration, Instant},
};

use latchwork_core::{Key, Mode, xact::XactRequest};
use sea_orm::{
    DatabaseTransaction, DbErr,
    sqlx::{AssertSqlSafe, Connection as _, Error, Executor as _, PgConnection, PgPool},
};
use tokio::{
    runtime::Handle,
    time::{error::Elapsed, timeout},
};
use tracing::{Instrument as _, Span, warn};

use crate::end;

/// An open transaction. Dropped, on whichever thread, it is rolled back in a task of its own.
pub(crate) struct Open {
    /// `None` only while it is dropped.
    transaction: Option<DatabaseTransaction>,
    server_side: ServerSide,
    pool: PgPool,
    /// The driver too gives a connection back by a task.
    runtime: Handle,
    span: Span,
}

/// What tells a transaction from all others in the server. SeaORM does not tell the pid of a connection, and nothing that
/// is sent unprepared can return it.
#[derive(Clone)]
struct ServerSide {
    /// When BEGIN was answered.
    begun: Instant,
    lock: Option<(Key, Mode)>,
}

impl Open {
    /// Guards a transaction that has just begun.
    pub(crate) fn new(transaction: DatabaseTransaction, pool: PgPool) -> Self {
        Self {
            transaction: Some(transaction),
            server_side: ServerSide {
                begun: Instant::now(),
                lock: None,
            },
            pool,
            runtime: Handle::current(),
            span: Span::current(),
        }
    }

    /// Remembers what was granted.
    pub(crate) fn has_locked(&mut self, request: &XactRequest) {
        let first = request.keys().as_slice().first();
        self.server_side.lock = first.map(|key| (*key, request.mode()));
    }

    /// Gives the connection back after an end in order.
    pub(crate) fn has_ended(mut self) {
        give_back(self.transaction.take().expect(PRESENT));
    }

    /// Ends the session, if it is still in a statement that it was in at a moment.
    #[cfg(feature = "http")]
    pub(crate) async fn end_what_runs(&self, since: Instant) {
        self.server_side.end_session(&self.pool, since).await;
    }

    /// Rolls back. What was left running is waited for until `limit`; then its session is ended.
    pub(crate) async fn roll_back(mut self, limit: Duration) -> Result<(), RollBackError> {
        let transaction = self.transaction.take().expect(PRESENT);
        let rolls_back = end::roll_back(&transaction);
        let ended = in_time(rolls_back, &self.server_side, &self.pool, limit).await;
        give_back(transaction);
        ended
    }
}

impl Deref for Open {
    type Target = DatabaseTransaction;

    fn deref(&self) -> &DatabaseTransaction {
        self.transaction.as_ref().expect(PRESENT)
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        let Some(transaction) = self.transaction.take() else {
            return;
        };
        let (server_side, pool) = (self.server_side.clone(), self.pool.clone());
        // What was nested in it was dropped with whoever used it, so that SeaORM's own will do.
        let rolls_back = async move { in_time(transaction.rollback(), &server_side, &pool, PATIENCE).await };
        let _entered = self.runtime.enter();
        self.runtime.spawn(rolls_back.instrument(self.span.clone()));
    }
}

/// Why a transaction was not rolled back in order.
#[derive(Debug, thiserror::Error)]
pub(crate) enum RollBackError {
    #[error("ROLLBACK failed")]
    Failed(#[from] DbErr),
    #[error("what the transaction has left running did not end in time")]
    Late(#[from] Elapsed),
}

/// SeaORM panics if a nested transaction that has outlived this one is at a statement at this moment. Then its connection is
/// closed when that one ends, and what has come of this one stands.
fn give_back(transaction: DatabaseTransaction) {
    if catch_unwind(AssertUnwindSafe(|| drop(transaction))).is_err() {
        warn!(target: "latchwork::sea_orm", "a nested transaction is still used, though the one that it is in has ended");
    }
}

async fn in_time(
    rolls_back: impl Future<Output = Result<(), DbErr>>,
    server_side: &ServerSide,
    pool: &PgPool,
    limit: Duration,
) -> Result<(), RollBackError> {
    let asked = Instant::now();
    let ended = timeout(limit, rolls_back).await;
    if ended.is_err() {
        server_side.end_session(pool, asked).await;
    }
    Ok(ended??)
}

impl ServerSide {
    /// Ends the session, if it is in a statement that it was in at a moment. By a connection of its own, since the place
    /// in the pool is taken for as long as that runs.
    async fn end_session(&self, pool: &PgPool, since: Instant) {
        let Some(terminate) = self.terminate(since) else {
            return;
        };
        let ends = async {
            let mut other = PgConnection::connect_with(&pool.connect_options()).await?;
            let done = other.execute(AssertSqlSafe(terminate)).await?;
            other.close().await.map(|()| done.rows_affected() == 1)
        };
        let ended: Result<Result<bool, Error>, Elapsed> = timeout(ENDING, ends).await;
        if !matches!(ended, Ok(Ok(true))) {
            warn!(target: "latchwork::sea_orm", "a statement of a transaction that was given up may still run, and hold its lock");
        }
    }

    /// By the lock, which no other holds but with shared ones, by when the transaction has begun, and by the statement,
    /// which nobody who has just been granted the lock is in for so long. If that fits several, none is ended. An end that
    /// is under way is left to itself.
    fn terminate(&self, since: Instant) -> Option<String> {
        let (key, mode) = self.lock?;
        let mode = match mode {
            Mode::Exclusive => "ExclusiveLock",
            Mode::Shared => "ShareLock",
        };
        let (classid, objid, objsubid) = (key.classid(), key.objid(), key.objsubid());
        let oldest = seconds(self.begun.elapsed() + ON_THE_WAY);
        let (youngest, since) = (at_least(self.begun), at_least(since));
        let ends = [end::COMMIT, end::ROLLBACK, "ROLLBACK"].map(|sql| format!("'{}'", sql.replace('\'', "''")));
        let ends = ends.join(", ");
        Some(format!(
            "SET LOCAL search_path = pg_catalog; SELECT pg_terminate_backend(pid) FROM (\
             SELECT min(pid) AS pid FROM pg_locks JOIN pg_stat_activity USING (pid) \
             WHERE locktype = 'advisory' AND database = (SELECT oid FROM pg_database WHERE datname = current_database()) \
             AND classid = {classid} AND objid = {objid} AND objsubid = {objsubid} AND mode = '{mode}' AND granted \
             AND state = 'active' AND query NOT IN ({ends}) AND query_start <= clock_timestamp() - interval '{since}' \
             AND xact_start BETWEEN clock_timestamp() - interval '{oldest}' AND clock_timestamp() - interval '{youngest}' \
             HAVING count(*) = 1) AS one"
        ))
    }
}

/// A little less than what has passed since, for two clocks do not tick alike.
fn at_least(since: Instant) -> impl Display {
    seconds(since.elapsed().mul_f64(0.99))
}

fn seconds(duration: Duration) -> impl Display {
    format!("{:.6} s", duration.as_secs_f64())
}

const PRESENT: &str = "a transaction is there until it is dropped";
/// More than the longest slice of a wait, whose end ROLLBACK waits for.
pub(crate) const PATIENCE: Duration = Duration::from_millis(1_500);
/// How long the answer to BEGIN and this question may take on their ways. If they take longer, nothing is found.
const ON_THE_WAY: Duration = Duration::from_secs(2);
/// How long a connection and that question may take.
const ENDING: Duration = Duration::from_secs(5);
