//! The conformance suite, on every engine and scope.

mod memory {
    integration_tests::promises_of_every_scope!(integration_tests::worlds::Memory);
    integration_tests::promises_of_sessions!(integration_tests::worlds::Memory);
    integration_tests::promises_of_turns!(integration_tests::worlds::Memory);
}

/// PostgreSQL with nothing between.
mod postgres {
    use integration_tests::worlds::{Direct, Postgresql};

    integration_tests::promises_of_every_scope!(Postgresql<Direct>);
    integration_tests::promises_of_sessions!(Postgresql<Direct>);
    integration_tests::promises_of_turns!(Postgresql<Direct>);
    integration_tests::promises_of_attempts!(Postgresql<Direct>);
}

/// PostgreSQL behind a PgBouncer in session mode.
mod pooled {
    use integration_tests::worlds::{Pooled, Postgresql};

    integration_tests::promises_of_every_scope!(Postgresql<Pooled>);
    integration_tests::promises_of_sessions!(Postgresql<Pooled>);
    integration_tests::promises_of_attempts!(Postgresql<Pooled>);
}

/// PostgreSQL without sessions that wait.
mod polling {
    use integration_tests::worlds::{Polling, Postgresql};

    integration_tests::promises_of_every_scope!(Postgresql<Polling>);
    integration_tests::promises_of_sessions!(Postgresql<Polling>);
    integration_tests::promises_of_turns!(Postgresql<Polling>);
    integration_tests::promises_of_attempts!(Postgresql<Polling>);
}

/// PostgreSQL with two locks a session and one session that waits.
mod crowded {
    use integration_tests::worlds::{Crowded, Postgresql};

    integration_tests::promises_of_every_scope!(Postgresql<Crowded>);
    integration_tests::promises_of_sessions!(Postgresql<Crowded>);
    integration_tests::promises_of_turns!(Postgresql<Crowded>);
}

/// Transactions on PostgreSQL.
mod transaction {
    integration_tests::promises_of_every_scope!(integration_tests::worlds::Transactions);
}

/// PostgreSQL on a server that is stopped.
mod outage {
    use integration_tests::worlds::{Alone, Postgresql};

    integration_tests::promises_of_outages!(Postgresql<Alone>);
}
