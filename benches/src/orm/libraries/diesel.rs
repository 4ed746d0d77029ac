use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};

use diesel::{
    Connection as _, ExpressionMethods as _, PgConnection, QueryDsl as _, QueryResult, RunQueryDsl as _,
    r2d2::{ConnectionManager, Pool},
    update,
};
use latchwork_diesel::LockedTransactionExt as _;
use tokio::task::spawn_blocking;

use super::schema::items;
use crate::{
    Failure,
    orm::{
        job::{Job, Lock},
        library::{Library, key, patient},
    },
};

/// diesel on connections of r2d2, with a thread for each task.
#[derive(Clone, Debug)]
pub(crate) struct Diesel(Pool<ConnectionManager<PgConnection>>);

impl Diesel {
    fn transact(&self, job: &Job) -> Result<(), Failure> {
        let mut connection = self.0.get()?;
        match job.lock {
            Lock::Ours => connection.locked_transaction(key(job), patient(), |connection| work(connection, job))?,
            _ => connection.transaction(|connection| work(connection, job))?,
        }
        Ok(())
    }
}

impl Library for Diesel {
    const NAME: &'static str = "diesel";
    const GOAL: f64 = 0.9;

    async fn connect(url: &str, connections: u32) -> Result<Self, Failure> {
        let manager = ConnectionManager::new(url);
        let pool = Pool::builder().max_size(connections).test_on_check_out(false);
        Ok(spawn_blocking(move || pool.build(manager)).await?.map(Self)?)
    }

    async fn transact(&self, job: Job) -> Result<(), Failure> {
        let this = self.clone();
        spawn_blocking(move || Self::transact(&this, &job)).await?
    }

    async fn work(self: Arc<Self>, job: Job, stop: Arc<AtomicBool>) -> Result<u64, Failure> {
        let works = move || {
            let mut done = 0;
            while !stop.load(Ordering::Relaxed) {
                Self::transact(&self, &job)?;
                done += 1;
            }
            Ok(done)
        };
        spawn_blocking(works).await?
    }
}

fn work(connection: &mut PgConnection, job: &Job) -> QueryResult<()> {
    job.begins();
    let item = items::table.find(job.row);
    let stock = item.select(items::stock);
    let stock: i64 = match job.lock {
        Lock::ForUpdate => stock.for_update().first(connection)?,
        _ => stock.first(connection)?,
    };
    update(item).set(items::stock.eq(stock - 1)).execute(connection)?;
    job.ends();
    Ok(())
}
