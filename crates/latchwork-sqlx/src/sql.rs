//! The statements around a lock. What goes together goes in one simple query, so none has parameters.

/// On a connection that somebody left in a transaction BEGIN only warns, and this has to fail: a transaction that was begun by
/// this message is as old as the message, and no number is `left open`. The setting goes with the transaction, whoever ends
/// it.
pub(crate) const BEGIN: &str = "BEGIN ISOLATION LEVEL READ COMMITTED; SET LOCAL latchwork.transaction = 'open'; \
     SELECT (CASE WHEN CURRENT_TIMESTAMP OPERATOR(pg_catalog.=) pg_catalog.statement_timestamp() \
     THEN '1' ELSE 'latchwork: left open' END)::pg_catalog.int4";

/// What the error of [`BEGIN`] says in a transaction that is not new, in whichever language.
pub(crate) const LEFT_OPEN: &str = "latchwork: left open";

/// What tells the transaction from all others in the server. It is asked with the first request for the lock, since sqlx
/// throws away what BEGIN is answered.
pub(crate) const FACTS: &str = "pg_catalog.pg_backend_pid(), CURRENT_TIMESTAMP";

/// COMMIT of an aborted transaction "succeeds", so something before it has to fail.
///
/// sqlx is not told of a COMMIT that goes with a question, and takes its transaction for open. The transaction that is
/// begun here is what it rolls back then, which travels with the ping that gives the connection back.
pub(crate) const COMMIT: &str = "SHOW latchwork.transaction; COMMIT; BEGIN";

/// The value of the setting in a transaction of ours.
pub(crate) const OPEN: &str = "open";
