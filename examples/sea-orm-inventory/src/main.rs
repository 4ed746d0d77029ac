//! The last 50 items and 200 buyers, with SeaORM.

mod stock;

use std::{process::ExitCode, time::Duration};

use inventory::{Failure, ITEM};
use latchwork_sea_orm::{Key, LockedTransactionExt as _, XactOptions};
use sea_orm::{
    ActiveModelTrait, ActiveValue::Set, ConnectOptions, Database, DatabaseConnection, DatabaseTransaction, DbErr,
    EntityTrait, IntoActiveModel,
};
use tokio::{runtime::Runtime, task::JoinSet};

fn main() -> ExitCode {
    inventory::run(|url, buyers| Runtime::new()?.block_on(buy(url, buyers)))
}

async fn buy(url: &str, buyers: u32) -> Result<u32, Failure> {
    let mut options = ConnectOptions::new(url);
    options
        .max_connections(16)
        .acquire_timeout(Duration::from_secs(30))
        .sqlx_logging(false);
    let database = Database::connect(options).await?;
    let mut buying = JoinSet::new();
    for _ in 0..buyers {
        buying.spawn(reserve(database.clone()));
    }
    let mut bought = 0;
    while let Some(reserved) = buying.join_next().await {
        bought += u32::from(reserved??);
    }
    Ok(bought)
}

/// Takes an item, if there is one.
async fn reserve(database: DatabaseConnection) -> Result<bool, Failure> {
    // One at a time for each row of the table, in all processes.
    let key = Key::row("stock", ITEM)?;
    let options = XactOptions::within(Duration::from_secs(30));
    Ok(database.locked_transaction(key, options, take_one).await?)
}

async fn take_one(tx: &DatabaseTransaction) -> Result<bool, DbErr> {
    let missing = || DbErr::RecordNotFound("the shelf".to_owned());
    let stock = stock::Entity::find_by_id(ITEM).one(tx).await?.ok_or_else(missing)?;
    if stock.remaining == 0 {
        return Ok(false);
    }
    let remaining = stock.remaining - 1;
    let mut stock = stock.into_active_model();
    stock.remaining = Set(remaining);
    stock.update(tx).await?;
    Ok(true)
}
