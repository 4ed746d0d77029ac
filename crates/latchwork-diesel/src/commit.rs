//! Ending a transaction so that what is reported is what the server has done.

use diesel::{
    Connection,
    connection::TransactionManager,
    pg::Pg,
    result::{Error, QueryResult},
};
use latchwork_core::xact::LockedError;

use crate::{begin::MARK, errors, state};

/// Commits. Afterwards no transaction is open.
pub(crate) fn commit<C, E>(conn: &mut C) -> Result<(), LockedError<E>>
where
    C: Connection<Backend = Pg>,
{
    match state::depth(conn).map(|depth| depth.map(Into::into)) {
        Ok(Some(1)) => send(conn),
        Ok(Some(2_u32..)) => {
            state::roll_back(conn);
            Err(LockedError::Aborted(
                "the body has left open a transaction that it had begun inside".into(),
            ))
        }
        Ok(_) => {
            // It may have begun another that the manager does not know of.
            state::clean(conn);
            Err(ended_by_body())
        }
        // COMMIT was not sent.
        Err(_) => {
            state::roll_back(conn);
            Err(LockedError::Aborted(
                "before COMMIT the connection had ended, or it was in doubt, though the body did not say so".into(),
            ))
        }
    }
}

/// COMMIT of an aborted transaction "succeeds", so it is sent behind a question that fails then; and the question
/// fails in a transaction that is not ours.
fn send<C, E>(conn: &mut C) -> Result<(), LockedError<E>>
where
    C: Connection<Backend = Pg>,
{
    let sql = format!(
        "SELECT CASE WHEN pg_catalog.current_setting('{MARK}', true) OPERATOR(pg_catalog.=) 'true' \
         THEN 'true' ELSE '{NOT_OURS}' END::pg_catalog.bool; COMMIT"
    );
    match conn.batch_execute(&sql) {
        Ok(()) => {
            // It is committed, whatever comes of this.
            if noticed(conn).is_err() {
                state::give_up(conn);
            }
            Ok(())
        }
        // It may have come before or after the commit; a pooler's word is no better.
        Err(error) if errors::is_lost(&error) => {
            state::give_up(conn);
            Err(LockedError::OutcomeUnknown(error.into()))
        }
        Err(error) => {
            // Refused by the question, it is still open; refused by COMMIT, it is not.
            state::roll_back(conn);
            if errors::says(&error, NOT_OURS) {
                Err(ended_by_body())
            } else {
                Err(LockedError::Aborted(error.into()))
            }
        }
    }
}

/// diesel's own connections see from libpq that the transaction has ended; a manager that has not is told by a COMMIT
/// through itself, at which the server only warns.
fn noticed<C: Connection<Backend = Pg>>(conn: &mut C) -> QueryResult<()> {
    match state::depth(conn)? {
        Some(_) => C::TransactionManager::commit_transaction(conn),
        None => Ok::<_, Error>(()),
    }
}

fn ended_by_body<E>() -> LockedError<E> {
    LockedError::OutcomeUnknown(format!("{NOT_OURS}; leave COMMIT and ROLLBACK to the locked transaction").into())
}

const NOT_OURS: &str = "the body has ended the transaction itself";
