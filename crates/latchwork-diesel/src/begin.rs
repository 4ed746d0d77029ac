//! Beginning a transaction, with its locks.

use std::time::Duration;

use diesel::{
    Connection,
    connection::AnsiTransactionManager,
    result::{Error, QueryResult},
};
use latchwork_core::{Key, Mode, xact::KeySet};

use crate::{errors, state};

/// A transaction manager that can begin by a statement of ours.
#[diagnostic::on_unimplemented(
    message = "latchwork cannot open a transaction on `{C}`",
    note = "for a connection of an r2d2 pool turn on the feature `r2d2` of latchwork-diesel"
)]
#[expect(unnameable_types, reason = "nobody else can implement a trait that they cannot name")]
pub trait BeginsBy<C: Connection> {
    /// Leaves the manager as it was if that fails.
    fn begin_by(conn: &mut C, sql: &str) -> QueryResult<()>;
}

impl<C: Connection<TransactionManager = Self>> BeginsBy<C> for AnsiTransactionManager {
    fn begin_by(conn: &mut C, sql: &str) -> QueryResult<()> {
        Self::begin_transaction_sql(conn, sql)
    }
}

#[cfg(feature = "r2d2")]
impl<M, T> BeginsBy<diesel::r2d2::PooledConnection<M>> for diesel::r2d2::PoolTransactionManager<T>
where
    M: diesel::r2d2::ManageConnection,
    M::Connection: Connection<TransactionManager = T> + diesel::r2d2::R2D2Connection + Send + 'static,
    T: BeginsBy<M::Connection> + diesel::connection::TransactionManager<M::Connection>,
{
    fn begin_by(conn: &mut diesel::r2d2::PooledConnection<M>, sql: &str) -> QueryResult<()> {
        T::begin_by(&mut **conn, sql)
    }
}

/// Begins a transaction by `sql`. If that fails, none is open afterwards.
pub(crate) fn begin<C>(conn: &mut C, sql: &str) -> Result<(), Error>
where
    C: Connection,
    C::TransactionManager: BeginsBy<C>,
{
    // Nothing was sent yet, so nothing is to be cleaned up.
    if state::depth(conn)?.is_some() {
        return Err(Error::AlreadyInTransaction);
    }
    C::TransactionManager::begin_by(conn, sql).inspect_err(|error| {
        if errors::is_lost(error) {
            state::give_up(conn);
        } else {
            // The manager takes it that nothing has begun, but the server may be inside a failed transaction.
            state::clean(conn);
        }
    })
}

/// Begins without a lock.
pub(crate) fn alone() -> String {
    begin_with("")
}

/// Begins and takes the locks, in one message, whose only answer is whether it has failed. It fails when the locks are
/// not there after `limit`.
///
/// A lock that is not free is waited for in the server's queue at once. Each key that is not free has its part of the
/// limit, so that all of them together stay within it.
pub(crate) fn with_locks(keys: &KeySet, mode: Mode, limit: Duration) -> String {
    let keys = keys.as_slice();
    let each = limit.as_nanos().div_ceil(1_000_000 * keys.len().max(1) as u128);
    let each = each.clamp(1, i32::MAX as u128);
    let locks = keys.iter().map(|key| {
        let lock = take(*key, mode, each);
        format!("WHEN {lock} THEN 'not locked' ")
    });
    let standby = "WHEN pg_catalog.pg_is_in_recovery() THEN 'a hot standby' ".to_owned();
    begin_with(&std::iter::once(standby).chain(locks).collect::<String>())
}

/// CASE stops at the first that is true. Only a text that is a boolean does not fail at the cast; an error of the cast
/// quotes the text, in whatever language.
fn begin_with(unless: &str) -> String {
    format!(
        "BEGIN ISOLATION LEVEL READ COMMITTED; SET LOCAL {MARK} = 'true'; \
         SELECT CASE WHEN {IS_OLD} THEN '{ALREADY_OPEN}' {unless}ELSE 'true' END::pg_catalog.bool"
    )
}

/// True if there is no lock. A wait that runs out is an error.
///
/// The wait is a text that is only run where it is needed: the server would have as much to do with reading it each time
/// as with all the rest. A server that was built without XML refuses to, and then the wait begins anew, in slices.
fn take(key: Key, mode: Mode, millis: u128) -> String {
    let suffix = match mode {
        Mode::Exclusive => "",
        Mode::Shared => "_shared",
    };
    let arguments = key.sql_arguments();
    let wait = format!(
        "SELECT pg_catalog.set_config('{STASH}', pg_catalog.current_setting('lock_timeout'), true), \
         pg_catalog.set_config('lock_timeout', '{millis}', true), \
         pg_catalog.pg_advisory_xact_lock{suffix}({arguments}), \
         pg_catalog.set_config('lock_timeout', pg_catalog.current_setting('{STASH}'), true)"
    );
    let wait = wait.replace('\'', "''");
    format!(
        "CASE WHEN pg_catalog.pg_try_advisory_xact_lock{suffix}({arguments}) THEN false \
         ELSE pg_catalog.query_to_xml('{wait}', false, false, '') IS NULL END"
    )
}

/// A setting that is `true` as long as the transaction is ours. It goes with the transaction, whoever ends it.
pub(crate) const MARK: &str = "latchwork.transaction";
/// What is said of a transaction that was open before ours, on which BEGIN only warns.
pub(crate) const ALREADY_OPEN: &str = "a transaction is open already that diesel does not know of";
/// A transaction that is begun by the same message has the message's time.
const IS_OLD: &str = "CURRENT_TIMESTAMP OPERATOR(pg_catalog.<>) pg_catalog.statement_timestamp()";
const STASH: &str = "latchwork.lock_timeout";
