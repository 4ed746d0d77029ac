use std::future::Future;

use deadpool_postgres::{Manager, ManagerConfig, Pool, RecyclingMethod, Transaction};
use latchwork_postgres::transaction::{LockedTransactionExt as _, PooledTx};
use tokio_postgres::{Client, Error, NoTls, Statement};

use super::{SELECT, SELECT_FOR_UPDATE, UPDATE};
use crate::{
    Failure,
    orm::{
        job::{Job, Lock},
        library::{Library, key, patient},
    },
};

/// tokio-postgres on connections of deadpool.
#[derive(Debug)]
pub(crate) struct Deadpool(Pool);

impl Library for Deadpool {
    const NAME: &'static str = "deadpool";
    const GOAL: f64 = 0.9;

    async fn connect(url: &str, connections: u32) -> Result<Self, Failure> {
        let config = ManagerConfig {
            recycling_method: RecyclingMethod::Fast,
        };
        let manager = Manager::from_config(url.parse()?, NoTls, config);
        Ok(Self(Pool::builder(manager).max_size(connections.try_into()?).build()?))
    }

    async fn transact(&self, job: Job) -> Result<(), Failure> {
        if job.lock == Lock::Ours {
            let works = async |tx: &PooledTx| work(tx, &job).await;
            return Ok(self.0.locked_transaction(key(&job), patient(), works).await?);
        }
        let mut client = self.0.get().await?;
        let transaction = client.transaction().await?;
        work(&transaction, &job).await?;
        Ok(transaction.commit().await?)
    }
}

/// A transaction whose connection keeps statements prepared.
trait Prepares: Sync {
    fn client(&self) -> &Client;

    fn prepare(&self, sql: &str) -> impl Future<Output = Result<Statement, Error>> + Send;
}

impl Prepares for PooledTx {
    fn client(&self) -> &Client {
        self
    }

    async fn prepare(&self, sql: &str) -> Result<Statement, Error> {
        self.prepare_cached(sql).await
    }
}

impl Prepares for Transaction<'_> {
    fn client(&self) -> &Client {
        (**self).client()
    }

    async fn prepare(&self, sql: &str) -> Result<Statement, Error> {
        self.prepare_cached(sql).await
    }
}

async fn work(transaction: &impl Prepares, job: &Job) -> Result<(), Error> {
    job.begins();
    let select = match job.lock {
        Lock::ForUpdate => SELECT_FOR_UPDATE,
        _ => SELECT,
    };
    let select = transaction.prepare(select).await?;
    let row = transaction.client().query_one(&select, &[&job.row]).await?;
    let left = row.get::<_, i64>(0) - 1;
    let update = transaction.prepare(UPDATE).await?;
    transaction.client().execute(&update, &[&job.row, &left]).await?;
    job.ends();
    Ok(())
}
