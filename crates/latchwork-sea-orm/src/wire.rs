//! Running what [`XactWait`] says on a transaction of SeaORM.
//!
//! SeaORM prepares every query that returns rows, once for each text and connection, which takes a round trip more and a
//! place in the cache of statements. What it sends as it is returns no rows, only their number. So the answer comes as a
//! number of rows.

use latchwork_core::xact::{XactLockError, XactStatement, XactWait};
use sea_orm::{ConnectionTrait as _, DatabaseTransaction, DbBackend, DbErr};
use tokio::time::timeout;

use crate::failure;

/// Goes on until it is decided, or until nobody wants it any more, which is `false` too.
pub(crate) async fn run(
    transaction: &DatabaseTransaction,
    wait: &mut XactWait,
    is_wanted: impl Fn() -> bool + Send,
) -> Result<bool, XactLockError> {
    if transaction.get_database_backend() != DbBackend::Postgres {
        return Err(wait.failed(None, NOT_POSTGRES));
    }
    while is_wanted()
        && let Some(statement) = wait.next()?
    {
        let answer = send(transaction, &statement, "").await;
        hear(wait, answer)?;
    }
    Ok(wait.is_granted())
}

/// Why a statement has no answer of ours.
pub(crate) enum Unanswered {
    Failed(DbErr),
    Silent,
}

/// Sends a statement after others without rows, and returns the answer.
pub(crate) async fn send(
    transaction: &DatabaseTransaction,
    statement: &XactStatement,
    before: &str,
) -> Result<&'static str, Unanswered> {
    let prepare = statement.prepare().map(|prepare| format!("{prepare}; "));
    let ask = counted(statement.ask());
    let query = format!("{before}{}{ask}", prepare.unwrap_or_default());
    match timeout(statement.answer_within(), transaction.execute_unprepared(&query)).await {
        Ok(Ok(done)) => Ok(answer(done.rows_affected())),
        Ok(Err(error)) => Err(Unanswered::Failed(error)),
        Err(_) => Err(Unanswered::Silent),
    }
}

/// Hands the answer back to the wait.
pub(crate) fn hear(wait: &mut XactWait, answer: Result<&str, Unanswered>) -> Result<(), XactLockError> {
    match answer {
        Ok(answer) => wait.answered(answer),
        Err(Unanswered::Silent) => Err(wait.no_answer()),
        Err(Unanswered::Failed(error)) if failure::is_lost(&error) => Err(wait.lost(error)),
        Err(Unanswered::Failed(error)) => {
            let sqlstate = failure::sqlstate(&error);
            Err(wait.failed(sqlstate.as_deref(), error))
        }
    }
}

/// Answers with as many empty rows as the place that the text has among [`ANSWERS`], from 1; none if it is not there.
fn counted(ask: &str) -> String {
    let answers = ANSWERS.map(|answer| format!("'{answer}'")).join(", ");
    format!(
        "SELECT FROM ({ask}) AS asked, LATERAL pg_catalog.generate_series(1, \
         pg_catalog.array_position(ARRAY[{answers}]::pg_catalog.text[], asked.answer))"
    )
}

fn answer(rows: u64) -> &'static str {
    let place = usize::try_from(rows).ok().and_then(|rows| rows.checked_sub(1));
    place
        .and_then(|place| ANSWERS.get(place))
        .copied()
        .unwrap_or("not one of ours")
}

/// All that the core knows of, and the levels of isolation that it refuses.
const ANSWERS: [&str; 10] = [
    "granted",
    "busy",
    "cancelled",
    "deadlock",
    "full",
    "standby",
    "superseded",
    "no transaction",
    "isolation repeatable read",
    "isolation serializable",
];

pub(crate) const NOT_POSTGRES: &str = "this is no connection to PostgreSQL, where the locks are";

#[cfg(test)]
mod tests {
    use latchwork_core::{
        Key, Mode,
        fence::Fence,
        xact::{FencedLimits, XactRequest},
    };

    use super::*;

    fn attempt() -> XactWait {
        XactWait::attempt(XactRequest::new(Key::bigint(1)))
    }

    #[test]
    fn every_number_of_rows_means_an_answer_that_the_core_knows() {
        let fence = Fence::fresh(Key::bigint(1), Mode::Exclusive);
        for rows in 1..=ANSWERS.len() as u64 {
            // It can hear all of them.
            let request = XactRequest::fenced(&fence, FencedLimits::default());
            let heard = XactWait::attempt(request).answered(answer(rows));
            assert!(!matches!(heard, Err(XactLockError::NoAnswer { .. })), "{rows}");
        }
        for rows in [0, ANSWERS.len() as u64 + 1, u64::MAX] {
            let heard = attempt().answered(answer(rows));
            assert!(matches!(heard, Err(XactLockError::NoAnswer { .. })), "{rows}");
        }
    }
}
