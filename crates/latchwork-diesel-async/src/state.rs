//! What diesel-async believes of a connection's transaction, which has to be what is so.

use diesel::{
    QueryResult,
    connection::{TransactionDepthChange, TransactionManagerStatus},
};
use diesel_async::{AnsiTransactionManager, AsyncConnection as _, AsyncPgConnection, TransactionManager};

fn status(connection: &mut AsyncPgConnection) -> &mut TransactionManagerStatus {
    <AnsiTransactionManager as TransactionManager<AsyncPgConnection>>::transaction_manager_status_mut(connection)
}

/// How deep in transactions the connection is; 0 for in none.
pub(crate) fn depth(connection: &mut AsyncPgConnection) -> QueryResult<u32> {
    let depth = status(connection).transaction_depth()?;
    Ok(depth.map_or(0, |depth| depth.get()))
}

/// Says that a transaction is begun: what is begun on it from now on is a savepoint, and pools do not take it back.
pub(crate) fn begin(connection: &mut AsyncPgConnection) {
    reset(connection);
    let begun = status(connection)
        .transaction_state()
        .and_then(|state| state.change_transaction_depth(TransactionDepthChange::IncreaseDepth));
    begun.expect("a fresh state can have its first transaction");
}

/// Says that the connection is in no transaction, whatever was left half done on it.
pub(crate) fn reset(connection: &mut AsyncPgConnection) {
    *connection.transaction_state() = AnsiTransactionManager::default();
}

/// Says that the connection is of no use any more.
#[cfg(feature = "bb8")]
pub(crate) fn spoil(connection: &mut AsyncPgConnection) {
    status(connection).set_in_error();
}
