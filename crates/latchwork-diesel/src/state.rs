//! What diesel's transaction manager knows of a connection, and how it is kept right.

use std::num::NonZeroU32;

use diesel::{Connection, connection::TransactionManager, result::QueryResult};
use tracing::warn;

use crate::errors;

/// How deep in transactions the connection is; an error if nobody knows.
pub(crate) fn depth<C: Connection>(conn: &mut C) -> QueryResult<Option<NonZeroU32>> {
    C::TransactionManager::transaction_manager_status_mut(conn).transaction_depth()
}

/// Has the connection's transactions refused from now on, and a pool close it.
pub(crate) fn give_up<C: Connection>(conn: &mut C) {
    C::TransactionManager::transaction_manager_status_mut(conn).set_in_error();
}

/// Ends the transaction with all that is nested in it. What cannot be ended closes with the connection.
pub(crate) fn roll_back<C: Connection>(conn: &mut C) {
    // Each level through the manager, which counts them, and which tells the user's instrumentation.
    while let Ok(Some(before)) = depth(conn) {
        let rolled_back = C::TransactionManager::rollback_transaction(conn);
        // After a savepoint that is gone, the levels above can still be rolled back.
        let is_done = rolled_back.is_ok() || matches!(depth(conn), Ok(Some(now)) if now < before);
        if !is_done {
            break;
        }
    }
    if !matches!(depth(conn), Ok(None)) {
        clean(conn);
    }
}

/// Ends what there may be in the server of which the manager does not know.
pub(crate) fn clean<C: Connection>(conn: &mut C) {
    let rolled_back = conn.batch_execute("ROLLBACK");
    match rolled_back {
        Ok(()) if matches!(depth(conn), Ok(None)) => return,
        // The server has rolled back, or is about to.
        Err(error) if errors::is_lost(&error) => {}
        unclear => {
            warn!(target: "latchwork::diesel", ?unclear, "a transaction was perhaps not rolled back; it ends with its connection");
        }
    }
    give_up(conn);
}
