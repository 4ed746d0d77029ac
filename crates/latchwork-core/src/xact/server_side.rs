/// What tells a transaction from all others in the server, so that another connection can end it: a statement that was
/// abandoned runs on there, with the locks of its transaction.
#[derive(Clone, Debug)]
pub struct ServerSide {
    pid: i32,
    begun: f64,
}

impl ServerSide {
    /// A transaction of the server process `pid` (`pg_backend_pid()`), begun at `transaction_timestamp()` in seconds since 1970.
    #[must_use]
    pub const fn new(pid: i32, begun: f64) -> Self {
        Self { pid, begun }
    }

    /// The server process.
    #[must_use]
    pub const fn pid(&self) -> i32 {
        self.pid
    }

    /// A query, to be sent on another connection of the same role, that ends the session if it is still in that transaction.
    /// It has one column, `ended`, and no row if it is not.
    #[must_use]
    pub fn terminate(&self) -> String {
        let Self { pid, begun } = self;
        format!(
            "SELECT pg_catalog.pg_terminate_backend(pid) AS ended FROM pg_catalog.pg_stat_activity \
             WHERE pid OPERATOR(pg_catalog.=) {pid} \
             AND pg_catalog.date_part('epoch', xact_start) OPERATOR(pg_catalog.=) '{begun}'::pg_catalog.float8"
        )
    }
}
