//! The statements around a lock. What goes together goes in one simple query, so none has parameters.

/// Remembers whether it has begun a transaction: on a connection that somebody left in one BEGIN only warns. The setting
/// goes with the transaction, whoever ends it.
pub(crate) const BEGIN: &str = "BEGIN ISOLATION LEVEL READ COMMITTED; \
     SELECT pg_catalog.set_config('latchwork.transaction', \
     CASE WHEN pg_catalog.transaction_timestamp() OPERATOR(pg_catalog.=) pg_catalog.statement_timestamp() \
     THEN 'open'::pg_catalog.text ELSE 'found'::pg_catalog.text END, true)";

/// Asks with the first request for the lock what tells the transaction: sqlx throws away what BEGIN is answered. In one
/// statement, since each costs the server as much as the lock does.
pub(crate) fn with_facts(ask: &str) -> String {
    format!(
        "SELECT asked.answer, pg_catalog.current_setting('latchwork.transaction', true), \
         pg_catalog.pg_backend_pid()::pg_catalog.text, \
         pg_catalog.date_part('epoch', pg_catalog.transaction_timestamp())::pg_catalog.text FROM ({ask}) AS asked"
    )
}

/// COMMIT of an aborted transaction "succeeds", so something before it has to fail.
///
/// sqlx is not told of a COMMIT that goes with a question, and takes its transaction for open. The transaction that is
/// begun here is what it rolls back then, which travels with the ping that gives the connection back.
pub(crate) const COMMIT: &str = "SHOW latchwork.transaction; COMMIT; BEGIN";

/// The value of the setting in a transaction of ours.
pub(crate) const OPEN: &str = "open";
