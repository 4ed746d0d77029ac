/// What tells a transaction from all others in the server, so that another connection can end it: a statement that was
/// abandoned runs on there, with the locks of its transaction.
#[derive(Clone, Debug)]
pub struct ServerSide {
    pid: i32,
    begun: String,
}

impl ServerSide {
    /// A transaction of the server process `pid` (`pg_backend_pid()`), begun at `CURRENT_TIMESTAMP`, as the server writes it.
    ///
    /// A number would not depend on the session's `DateStyle`, but to compute it costs as much as to take the lock.
    #[must_use]
    pub fn new(pid: i32, begun: impl Into<String>) -> Self {
        let begun = begun.into();
        Self { pid, begun }
    }

    /// The server process.
    #[must_use]
    pub const fn pid(&self) -> i32 {
        self.pid
    }

    /// A query, to be sent on another connection of the same role, that ends the session if it is still in that transaction.
    /// It has one column, `ended`, and no row if it is not. It fails, or has no row, where the other connection writes dates
    /// otherwise (`DateStyle`).
    #[must_use]
    pub fn terminate(&self) -> String {
        let (pid, begun) = (self.pid, self.begun.replace('\'', "''"));
        format!(
            "SELECT pg_catalog.pg_terminate_backend(pid) AS ended FROM pg_catalog.pg_stat_activity \
             WHERE pid OPERATOR(pg_catalog.=) {pid} \
             AND xact_start OPERATOR(pg_catalog.=) '{begun}'::pg_catalog.timestamptz"
        )
    }
}
