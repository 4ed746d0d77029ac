mod items;

use latchwork_sea_orm::LockedTransactionExt as _;
use sea_orm::{
    ActiveModelTrait as _, ActiveValue::Set, ConnectOptions, Database, DatabaseConnection, DatabaseTransaction, DbErr,
    EntityTrait as _, IntoActiveModel as _, QuerySelect as _, TransactionTrait as _,
};

use crate::{
    Failure,
    orm::{
        job::{Job, Lock},
        library::{Library, key, patient},
    },
};

/// SeaORM, with its entities.
#[derive(Debug)]
pub(crate) struct SeaOrm(DatabaseConnection);

impl Library for SeaOrm {
    const NAME: &'static str = "sea-orm";
    const GOAL: f64 = 0.8;

    async fn connect(url: &str, connections: u32) -> Result<Self, Failure> {
        let mut options = ConnectOptions::new(url);
        options
            .max_connections(connections)
            .test_before_acquire(false)
            .sqlx_logging(false);
        Ok(Self(Database::connect(options).await?))
    }

    async fn transact(&self, job: Job) -> Result<(), Failure> {
        if job.lock == Lock::Ours {
            let works = async |tx: &DatabaseTransaction| work(tx, &job).await;
            return Ok(self.0.locked_transaction(key(&job), patient(), works).await?);
        }
        let transaction = self.0.begin().await?;
        work(&transaction, &job).await?;
        Ok(transaction.commit().await?)
    }
}

async fn work(transaction: &DatabaseTransaction, job: &Job) -> Result<(), DbErr> {
    job.begins();
    let find = items::Entity::find_by_id(job.row);
    let find = match job.lock {
        Lock::ForUpdate => find.lock_exclusive(),
        _ => find,
    };
    let missing = || DbErr::RecordNotFound("the row".to_owned());
    let item = find.one(transaction).await?.ok_or_else(missing)?;
    let left = item.stock - 1;
    let mut item = item.into_active_model();
    item.stock = Set(left);
    item.update(transaction).await?;
    job.ends();
    Ok(())
}
