use std::{fmt, future::Future, ops::Deref, time::Duration};

use latchwork_http::tx::TxError;
use sea_orm::{
    ConnectionTrait as _, DatabaseConnection, DatabaseTransaction, DbBackend, DbErr, QueryResult, Statement,
    sqlx::{AssertSqlSafe, Connection as _, Error, Executor as _, PgConnection, PgPool},
};
use tokio::time::{error::Elapsed, timeout};
use tracing::warn;

use super::from_statement;
use crate::open::Open;

/// An open transaction on a connection of the pool. Dropped, it is rolled back on its way there.
///
/// It is a `DatabaseTransaction` for everything but its end: `commit()` and `rollback()` need one to have, and this only
/// lends it. Nor may statements end it: a COMMIT or ROLLBACK of the handler's is found out at the end and reported as an
/// outcome that is not known. For a savepoint call `begin()`, and end what it returns before the response.
///
/// More locks of transaction scope can be taken on it with [`XactLockExt`](crate::XactLockExt).
///
/// ```compile_fail,E0507
/// async fn handler(tx: latchwork_sea_orm::PooledTx) {
///     let ended = tx.commit().await;
/// }
/// ```
#[must_use = "dropping it rolls it back"]
pub struct PooledTx {
    open: Open,
    pool: PgPool,
    answer_within: Duration,
    server_side: ServerSide,
}

/// What tells this transaction from all others in the server.
struct ServerSide {
    pid: i32,
    begun: f64,
}

impl ServerSide {
    fn new(row: &QueryResult) -> Result<Self, DbErr> {
        Ok(Self {
            pid: row.try_get_by_index(0)?,
            begun: row.try_get_by_index(1)?,
        })
    }

    /// Ends the session that the transaction is on, if it still is.
    fn terminate(&self) -> String {
        let Self { pid, begun } = self;
        format!(
            "SELECT pg_catalog.pg_terminate_backend(pid) FROM pg_catalog.pg_stat_activity \
             WHERE pid OPERATOR(pg_catalog.=) {pid} \
             AND pg_catalog.date_part('epoch', xact_start) OPERATOR(pg_catalog.=) '{begun}'::pg_catalog.float8"
        )
    }
}

impl PooledTx {
    /// Asks the server what it calls the transaction, so that it can be ended from elsewhere.
    pub(super) async fn new(
        open: Open,
        database: &DatabaseConnection,
        answer_within: Duration,
    ) -> Result<Self, TxError> {
        let asked = open.query_one_raw(Statement::from_string(DbBackend::Postgres, NAME));
        let row = timeout(answer_within, asked).await.map_err(TxError::unavailable)?;
        let row = row.map_err(from_statement)?;
        let row = row.ok_or_else(|| TxError::other("the server does not say what it calls a transaction"))?;
        Ok(Self {
            server_side: ServerSide::new(&row).map_err(TxError::other)?,
            pool: database.get_postgres_connection_pool().clone(),
            answer_within,
            open,
        })
    }

    pub(super) async fn in_time<T>(&self, answer: impl Future<Output = T>) -> Result<T, Elapsed> {
        timeout(self.answer_within, answer).await
    }

    /// Ends what it has left running in the server. By a connection of its own, since its place in the pool is taken for
    /// as long as that runs.
    pub(super) async fn terminate(self) {
        let terminates = async {
            let mut other = PgConnection::connect_with(&self.pool.connect_options()).await?;
            other.execute(AssertSqlSafe(self.server_side.terminate())).await?;
            other.close().await
        };
        let ended: Result<Result<(), Error>, Elapsed> = self.in_time(terminates).await;
        if !matches!(ended, Ok(Ok(()))) {
            let pid = self.server_side.pid;
            warn!(target: "latchwork::sea_orm", pid, "a statement of a request that has ended may still run, and hold its lock");
        }
    }
}

impl Deref for PooledTx {
    type Target = DatabaseTransaction;

    fn deref(&self) -> &DatabaseTransaction {
        &self.open
    }
}

impl fmt::Debug for PooledTx {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PooledTx").finish_non_exhaustive()
    }
}

const NAME: &str =
    "SELECT pg_catalog.pg_backend_pid(), pg_catalog.date_part('epoch', pg_catalog.transaction_timestamp())";
