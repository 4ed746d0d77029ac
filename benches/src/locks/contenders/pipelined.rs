use std::sync::Arc;

use tokio_postgres::{Client, Statement};

use super::{TRY, UNLOCK};
use crate::{
    Failure,
    connection::connect,
    locks::contender::{Contender, Stopwatch, Task},
};

/// One connection for all tasks, on which tokio-postgres pipelines a statement for each key.
#[derive(Debug)]
pub(crate) struct Pipelined(PipelinedTask);

impl Pipelined {
    pub(crate) async fn connect(url: &str) -> Result<Self, Failure> {
        let client = connect(url).await?;
        let (attempt, unlock) = (client.prepare(TRY).await?, client.prepare(UNLOCK).await?);
        Ok(Self(PipelinedTask {
            client: Arc::new(client),
            attempt,
            unlock,
            key: 0,
        }))
    }
}

impl Contender for Pipelined {
    type Task = PipelinedTask;

    fn task(&self, key: i64) -> PipelinedTask {
        PipelinedTask { key, ..self.0.clone() }
    }
}

#[derive(Clone, Debug)]
pub(crate) struct PipelinedTask {
    client: Arc<Client>,
    attempt: Statement,
    unlock: Statement,
    key: i64,
}

impl Task for PipelinedTask {
    async fn cycle(&mut self, watch: &mut Stopwatch) -> Result<(), Failure> {
        watch.acquired(self.client.query_one(&self.attempt, &[&self.key]).await?.get(0))?;
        let unlocked: bool = self.client.query_one(&self.unlock, &[&self.key]).await?.get(0);
        if unlocked {
            Ok(())
        } else {
            Err("the lock was not held".into())
        }
    }
}
