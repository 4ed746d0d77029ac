use std::{
    pin::Pin,
    time::{Duration, Instant},
};

use tokio_postgres::{Client, Statement};

use crate::{
    Failure,
    connection::connect,
    locks::contender::{Entrant, Round},
};

/// Cycles in one statement.
const CYCLES: i32 = 20_000;
const STATEMENT: &str = "SELECT count(*) FILTER (WHERE pg_catalog.pg_try_advisory_lock(g) \
     AND pg_catalog.pg_advisory_unlock(g)) FROM pg_catalog.generate_series(1, $1::pg_catalog.int4) g";

/// What the server can do with nobody asking: statements that lock and unlock by themselves. The number of tasks makes
/// no difference to it.
#[derive(Debug)]
pub(crate) struct Ceiling {
    client: Client,
    statement: Statement,
}

impl Ceiling {
    pub(crate) async fn connect(url: &str) -> Result<Self, Failure> {
        let client = connect(url).await?;
        let statement = client.prepare(STATEMENT).await?;
        Ok(Self { client, statement })
    }

    async fn run(&self, length: Duration) -> Result<Round, Failure> {
        let mut round = Round::default();
        let started = Instant::now();
        while round.elapsed < length {
            let cycles: i64 = self.client.query_one(&self.statement, &[&CYCLES]).await?.get(0);
            if cycles != i64::from(CYCLES) {
                return Err("a key that nobody else uses was not free".into());
            }
            round.cycles += cycles.unsigned_abs();
            round.elapsed = started.elapsed();
        }
        Ok(round)
    }
}

impl Entrant for Ceiling {
    fn round(
        &self,
        _tasks: usize,
        length: Duration,
    ) -> Pin<Box<dyn Future<Output = Result<Round, Failure>> + Send + '_>> {
        Box::pin(self.run(length))
    }
}
