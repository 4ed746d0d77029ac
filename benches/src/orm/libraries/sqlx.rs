use latchwork_sqlx::LockedTransactionExt as _;
use sqlx::{Error, PgConnection, PgPool, PgTransaction, postgres::PgPoolOptions, query, query_scalar};

use super::{SELECT, SELECT_FOR_UPDATE, UPDATE};
use crate::{
    Failure,
    orm::{
        job::{Job, Lock},
        library::{Library, key, patient},
    },
};

/// sqlx, on its own pool.
#[derive(Debug)]
pub(crate) struct Sqlx(PgPool);

impl Library for Sqlx {
    const NAME: &'static str = "sqlx";
    const GOAL: f64 = 0.8;

    async fn connect(url: &str, connections: u32) -> Result<Self, Failure> {
        let options = PgPoolOptions::new()
            .max_connections(connections)
            .test_before_acquire(false);
        Ok(Self(options.connect(url).await?))
    }

    async fn transact(&self, job: Job) -> Result<(), Failure> {
        if job.lock == Lock::Ours {
            let works = async |tx: &mut PgTransaction<'_>| work(tx, &job).await;
            return Ok(self.0.locked_transaction(key(&job), patient(), works).await?);
        }
        let mut transaction = self.0.begin().await?;
        work(&mut transaction, &job).await?;
        Ok(transaction.commit().await?)
    }
}

async fn work(connection: &mut PgConnection, job: &Job) -> Result<(), Error> {
    job.begins();
    let select = match job.lock {
        Lock::ForUpdate => SELECT_FOR_UPDATE,
        _ => SELECT,
    };
    let stock: i64 = query_scalar(select).bind(job.row).fetch_one(&mut *connection).await?;
    query(UPDATE)
        .bind(job.row)
        .bind(stock - 1)
        .execute(&mut *connection)
        .await?;
    job.ends();
    Ok(())
}
