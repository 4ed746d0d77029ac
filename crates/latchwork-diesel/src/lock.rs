use std::fmt;
use std::time::Duration;

use diesel::{
    Connection, QueryableByName, RunQueryDsl, connection::LoadConnection, pg::Pg, result::QueryResult, sql_query,
    sql_types,
};
use latchwork_core::{
    Mode,
    xact::{KeySet, XactLockError, XactRequest, XactStatement, XactWait},
};

use crate::{errors, state};

/// Locks on a connection with a transaction open. Implemented for every connection to PostgreSQL; nobody else can.
///
/// # Examples
///
/// ```no_run
/// use std::time::Duration;
///
/// use diesel::{PgConnection, prelude::*, sql_query};
/// use latchwork_diesel::{Key, XactLockExt as _};
///
/// # fn example(conn: &mut PgConnection) -> Result<(), Box<dyn std::error::Error>> {
/// conn.transaction(|conn| {
///     conn.xact_lock(Key::bigint(42)).within(Duration::from_secs(2))?;
///     sql_query("UPDATE accounts SET balance = balance - 1 WHERE id = 42").execute(conn)?;
///     Ok(())
/// })
/// # }
/// ```
pub trait XactLockExt: sealed::OnPostgres {
    /// Describes an exclusive lock on a key, or on several, which are taken all or none. It is taken by
    /// [`within`](XactLock::within) or [`without_limit`](XactLock::without_limit).
    fn xact_lock(&mut self, keys: impl Into<KeySet>) -> XactLock<'_, Self> {
        XactLock::new(self, XactRequest::new(keys))
    }

    /// Describes a shared lock on a key or several, which excludes exclusive ones only.
    fn xact_lock_shared(&mut self, keys: impl Into<KeySet>) -> XactLock<'_, Self> {
        XactLock::new(self, XactRequest::new(keys).with_mode(Mode::Shared))
    }

    /// Takes an exclusive lock on a key, or on several, if all are free. `false` means that somebody else has one; none
    /// is taken then.
    ///
    /// One key costs one round trip, several cost two.
    ///
    /// # Errors
    ///
    /// [`XactLockError`], never [`TimedOut`](XactLockError::TimedOut).
    fn try_xact_lock(&mut self, keys: impl Into<KeySet>) -> Result<bool, XactLockError> {
        run(self, XactWait::attempt(XactRequest::new(keys)))
    }

    /// Takes a shared lock if nobody holds it exclusively; otherwise as [`try_xact_lock`](Self::try_xact_lock).
    ///
    /// # Errors
    ///
    /// As [`try_xact_lock`](Self::try_xact_lock).
    fn try_xact_lock_shared(&mut self, keys: impl Into<KeySet>) -> Result<bool, XactLockError> {
        run(self, XactWait::attempt(XactRequest::new(keys).with_mode(Mode::Shared)))
    }
}

impl<C: sealed::OnPostgres> XactLockExt for C {}

pub(crate) mod sealed {
    use diesel::{Connection, connection::LoadConnection, pg::Pg};

    #[expect(unnameable_types, reason = "nobody else can implement a trait that they cannot name")]
    pub trait OnPostgres: Connection<Backend = Pg> + LoadConnection {}

    impl<C: Connection<Backend = Pg> + LoadConnection> OnPostgres for C {}
}

/// A lock that a transaction is about to take; it needs to be told how long it may wait.
#[must_use = "nothing is locked until `within` or `without_limit` is called"]
pub struct XactLock<'a, C> {
    conn: &'a mut C,
    request: XactRequest,
}

impl<'a, C: XactLockExt> XactLock<'a, C> {
    const fn new(conn: &'a mut C, request: XactRequest) -> Self {
        Self { conn, request }
    }

    /// Takes the lock in REPEATABLE READ and SERIALIZABLE too. The default is to refuse, since the work then does not
    /// see what the last holder has committed.
    pub fn allow_stale_snapshot(mut self) -> Self {
        self.request = self.request.allow_stale_snapshot();
        self
    }

    /// Waits for the lock, at most for `limit`. Zero makes one attempt.
    ///
    /// A lock that is free costs one round trip, several cost two. For one that is not the server waits in slices of
    /// about 1 second, so that vacuum is not held up for longer; in between, a waiter loses its place in the queue. When
    /// the limit runs out the transaction is usable, and its `lock_timeout` is what it was, as it is after a grant.
    ///
    /// # Errors
    ///
    /// [`XactLockError::TimedOut`] when the limit ran out, and the others.
    pub fn within(self, limit: Duration) -> Result<(), XactLockError> {
        run(self.conn, XactWait::within(self.request, Some(limit))).map(drop)
    }

    /// Waits for the lock for ever.
    ///
    /// A holder that never ends then blocks this transaction, and the connection and the thread that it has, for as
    /// long.
    ///
    /// # Errors
    ///
    /// [`XactLockError`], never [`TimedOut`](XactLockError::TimedOut).
    pub fn without_limit(self) -> Result<(), XactLockError> {
        run(self.conn, XactWait::within(self.request, None)).map(drop)
    }
}

impl<C> fmt::Debug for XactLock<'_, C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("XactLock")
            .field("request", &self.request)
            .finish_non_exhaustive()
    }
}

/// Does what [`XactWait`] says.
pub(crate) fn run<C>(conn: &mut C, mut wait: XactWait) -> Result<bool, XactLockError>
where
    C: Connection<Backend = Pg> + LoadConnection,
{
    run_while(conn, &mut wait, || true)
}

/// The same for as long as anybody wants it, which is asked before each statement.
pub(crate) fn run_while<C>(
    conn: &mut C,
    wait: &mut XactWait,
    is_wanted: impl Fn() -> bool,
) -> Result<bool, XactLockError>
where
    C: Connection<Backend = Pg> + LoadConnection,
{
    match state::depth(conn) {
        Ok(Some(_)) => {}
        Ok(None) => return Err(wait.no_transaction()),
        Err(broken) => return Err(wait.lost(broken)),
    }
    while is_wanted()
        && let Some(statement) = wait.next()?
    {
        let answer = send(conn, &statement).map_err(|error| errors::lock(conn, wait, error))?;
        wait.answered(&answer.unwrap_or_default())?;
    }
    Ok(wait.is_granted())
}

/// Two messages where there is something to prepare, since diesel reads no rows of a query of several statements.
fn send<C>(conn: &mut C, statement: &XactStatement) -> QueryResult<Option<String>>
where
    C: Connection<Backend = Pg> + LoadConnection,
{
    if let Some(prepare) = statement.prepare() {
        conn.batch_execute(prepare)?;
    }
    sql_query(statement.ask()).get_result(conn).map(|Row { answer }| answer)
}

#[derive(QueryableByName)]
struct Row {
    #[diesel(sql_type = sql_types::Nullable<sql_types::Text>)]
    answer: Option<String>,
}
