//! The statements around a lock.

use diesel::{
    QueryResult,
    pg::Pg,
    query_builder::{AstPass, Query, QueryFragment, QueryId},
    sql_types::{Nullable, Text},
};

/// Remembers whether it has begun a transaction: on a connection that somebody left in one BEGIN only warns. The setting
/// goes with the transaction, whoever ends it.
pub(crate) const BEGIN: &str = "BEGIN ISOLATION LEVEL READ COMMITTED; \
     SELECT pg_catalog.set_config('latchwork.transaction', \
     CASE WHEN pg_catalog.transaction_timestamp() OPERATOR(pg_catalog.=) pg_catalog.statement_timestamp() \
     THEN 'open'::pg_catalog.text ELSE 'found'::pg_catalog.text END, true)";

/// COMMIT of an aborted transaction "succeeds", and so does one that has nothing to commit any more: something before it
/// has to fail. There is no way to read a row here, so in a transaction that is not ours the text is no number, and comes
/// back in the error.
pub(crate) const COMMIT: &str = "SELECT (CASE WHEN pg_catalog.current_setting('latchwork.transaction', true) \
     OPERATOR(pg_catalog.=) 'open'::pg_catalog.text THEN '1'::pg_catalog.text \
     ELSE 'latchwork: ended by its body'::pg_catalog.text END)::pg_catalog.int4; COMMIT";

/// What an error says of [`COMMIT`] in a transaction that is not ours, in whichever language.
pub(crate) const NOT_OURS: &str = "latchwork: ended by its body";

/// The value of the setting in a transaction of ours.
pub(crate) const OPEN: &str = "open";

/// Keeps what a question is answered for [`Answer`]: several statements at once can be sent, but their rows not read.
pub(crate) fn keeping(prepare: Option<&str>, ask: &str) -> String {
    let prepare = prepare.map(|prepare| format!("{prepare}; ")).unwrap_or_default();
    format!("{prepare}SELECT pg_catalog.set_config('latchwork.answer', ({ask}), true)")
}

/// What was answered, whether the transaction is ours, and what tells it from all others in the server: its pid and
/// beginning. The text is always the same, so that it is prepared once for each connection.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Answer;

/// The row of an [`Answer`].
pub(crate) type Answered = (Option<String>, Option<String>, Option<String>, Option<String>);

impl QueryFragment<Pg> for Answer {
    fn walk_ast<'b>(&'b self, mut out: AstPass<'_, 'b, Pg>) -> QueryResult<()> {
        out.push_sql(
            "SELECT pg_catalog.current_setting('latchwork.answer', true), \
             pg_catalog.current_setting('latchwork.transaction', true), \
             pg_catalog.pg_backend_pid()::pg_catalog.text, \
             pg_catalog.date_part('epoch', pg_catalog.transaction_timestamp())::pg_catalog.text",
        );
        Ok(())
    }
}

impl QueryId for Answer {
    type QueryId = Self;

    const HAS_STATIC_QUERY_ID: bool = true;
}

impl Query for Answer {
    type SqlType = (Nullable<Text>, Nullable<Text>, Nullable<Text>, Nullable<Text>);
}
