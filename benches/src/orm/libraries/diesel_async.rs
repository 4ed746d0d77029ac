use diesel::{ExpressionMethods as _, QueryDsl as _, QueryResult, update};
use diesel_async::{
    AsyncConnection as _, AsyncPgConnection, RunQueryDsl as _,
    pooled_connection::{AsyncDieselConnectionManager, ManagerConfig, RecyclingMethod, deadpool::Pool},
};
use latchwork_diesel_async::LockedTransactionExt as _;

use super::schema::items;
use crate::{
    Failure,
    orm::{
        job::{Job, Lock},
        library::{Library, key, patient},
    },
};

/// diesel-async on connections of deadpool.
pub(crate) struct DieselAsync(Pool<AsyncPgConnection>);

impl Library for DieselAsync {
    const NAME: &'static str = "diesel-async";
    const GOAL: f64 = 0.9;

    async fn connect(url: &str, connections: u32) -> Result<Self, Failure> {
        let mut config = ManagerConfig::default();
        config.recycling_method = RecyclingMethod::Fast;
        let manager = AsyncDieselConnectionManager::new_with_config(url, config);
        Ok(Self(Pool::builder(manager).max_size(connections.try_into()?).build()?))
    }

    async fn transact(&self, job: Job) -> Result<(), Failure> {
        if job.lock == Lock::Ours {
            let works = async |connection: &mut AsyncPgConnection| work(connection, &job).await;
            return Ok(self.0.locked_transaction(key(&job), patient(), works).await?);
        }
        let mut connection = self.0.get().await?;
        let works = async |connection: &mut _| work(connection, &job).await;
        Ok(AsyncPgConnection::transaction(&mut connection, works).await?)
    }
}

async fn work(connection: &mut AsyncPgConnection, job: &Job) -> QueryResult<()> {
    job.begins();
    let item = items::table.find(job.row);
    let stock = item.select(items::stock);
    let stock: i64 = match job.lock {
        Lock::ForUpdate => stock.for_update().first(connection).await?,
        _ => stock.first(connection).await?,
    };
    update(item).set(items::stock.eq(stock - 1)).execute(connection).await?;
    job.ends();
    Ok(())
}
