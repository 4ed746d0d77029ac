//! The statements around a lock.

use diesel::{
    QueryResult,
    pg::Pg,
    query_builder::{AstPass, Query, QueryFragment, QueryId},
    sql_types::{BigInt, Integer, Nullable, Text},
};
use latchwork_core::Key;

/// On a connection that somebody left in a transaction BEGIN only warns. The level can only be changed before the first query
/// of a transaction, and outside of savepoints; since one of the two changes it, this fails where something was done already.
pub(crate) const BEGIN: &str = "BEGIN ISOLATION LEVEL REPEATABLE READ; SET TRANSACTION ISOLATION LEVEL READ COMMITTED";

/// COMMIT of an aborted transaction "succeeds", and so does one that has nothing to commit any more: something before it
/// has to fail. There is no way to read a row here, so in a transaction that is not ours the text is no number, and comes
/// back in the error.
pub(crate) const COMMIT: &str = "SELECT (CASE WHEN pg_catalog.current_setting('latchwork.transaction', true) \
     OPERATOR(pg_catalog.=) 'open' THEN '1' ELSE 'latchwork: ended by its body' END)::pg_catalog.int4; COMMIT";

/// What an error says of [`COMMIT`] in a transaction that is not ours, in whichever language.
pub(crate) const NOT_OURS: &str = "latchwork: ended by its body";

/// Marks a transaction as ours. The setting goes with the transaction, whoever ends it.
const MARK: &str = ", pg_catalog.set_config('latchwork.transaction', 'open', true)";
/// What tells a transaction from all others in the server.
const NAME: &str = "pg_catalog.pg_backend_pid(), CURRENT_TIMESTAMP::pg_catalog.text";

/// Keeps what a question is answered for [`Answer`]: several statements at once can be sent, but their rows not read.
pub(crate) fn keeping(prepare: Option<&str>, ask: &str, begins: bool) -> String {
    let prepare = prepare.map(|prepare| format!("{prepare}; ")).unwrap_or_default();
    let mark = if begins { MARK } else { "" };
    format!("{prepare}SELECT pg_catalog.set_config('latchwork.answer', ({ask}), true){mark}")
}

/// The row of an [`Answer`] or [`Attempt`]: what was answered, the server's pid, and when the transaction was begun.
pub(crate) type Answered = (Option<String>, i32, String);

/// Asks what was answered. The text is always the same, so that it is prepared once for each connection.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Answer;

impl QueryFragment<Pg> for Answer {
    fn walk_ast<'b>(&'b self, mut out: AstPass<'_, 'b, Pg>) -> QueryResult<()> {
        out.push_sql("SELECT pg_catalog.current_setting('latchwork.answer', true), ");
        out.push_sql(NAME);
        Ok(())
    }
}

impl QueryId for Answer {
    type QueryId = Self;

    const HAS_STATIC_QUERY_ID: bool = true;
}

impl Query for Answer {
    type SqlType = (Nullable<Text>, Integer, Text);
}

/// Asks for one key, which is a parameter; so it is prepared once for each connection too.
pub(crate) struct Attempt<'a> {
    ask: &'a str,
    bigint: Option<i64>,
    pair: Option<(i32, i32)>,
    begins: bool,
}

impl<'a> Attempt<'a> {
    pub(crate) const fn new(ask: &'a str, key: Key, begins: bool) -> Self {
        Self {
            ask,
            bigint: key.as_bigint(),
            pair: key.as_pair(),
            begins,
        }
    }
}

impl QueryFragment<Pg> for Attempt<'_> {
    fn walk_ast<'b>(&'b self, mut out: AstPass<'_, 'b, Pg>) -> QueryResult<()> {
        // Behind the one column that is asked.
        out.push_sql(self.ask);
        out.push_sql(", ");
        out.push_sql(NAME);
        if self.begins {
            out.push_sql(MARK);
        }
        if let Some(bigint) = &self.bigint {
            out.push_bind_param_value_only::<BigInt, _>(bigint)?;
        }
        if let Some((first, second)) = &self.pair {
            out.push_bind_param_value_only::<Integer, _>(first)?;
            out.push_bind_param_value_only::<Integer, _>(second)?;
        }
        Ok(())
    }
}

impl QueryId for Attempt<'_> {
    type QueryId = ();

    const HAS_STATIC_QUERY_ID: bool = false;
}

impl Query for Attempt<'_> {
    type SqlType = (Nullable<Text>, Integer, Text);
}
