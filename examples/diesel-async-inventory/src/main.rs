//! The last 50 items and 200 buyers, with diesel-async.

mod schema;

use std::{process::ExitCode, time::Duration};

use diesel::{ExpressionMethods, QueryDsl, QueryResult, update};
use diesel_async::{
    AsyncPgConnection, RunQueryDsl,
    pooled_connection::{AsyncDieselConnectionManager, deadpool::Pool},
};
use inventory::{Failure, ITEM};
use latchwork_diesel_async::{Key, LockedTransactionExt as _, XactOptions};
use tokio::{runtime::Runtime, task::JoinSet};

use crate::schema::stock;

fn main() -> ExitCode {
    inventory::run(|url, buyers| Runtime::new()?.block_on(buy(url, buyers)))
}

async fn buy(url: &str, buyers: u32) -> Result<u32, Failure> {
    let manager = AsyncDieselConnectionManager::new(url);
    let pool = Pool::builder(manager).max_size(16).build()?;
    let mut buying = JoinSet::new();
    for _ in 0..buyers {
        buying.spawn(reserve(pool.clone()));
    }
    let mut bought = 0;
    while let Some(reserved) = buying.join_next().await {
        bought += u32::from(reserved??);
    }
    Ok(bought)
}

/// Takes an item, if there is one.
async fn reserve(pool: Pool<AsyncPgConnection>) -> Result<bool, Failure> {
    // One at a time for each row of the table, in all processes.
    let key = Key::row("stock", ITEM)?;
    let options = XactOptions::within(Duration::from_secs(30));
    Ok(pool.locked_transaction(key, options, take_one).await?)
}

async fn take_one(connection: &mut AsyncPgConnection) -> QueryResult<bool> {
    let shelf = stock::table.find(ITEM);
    let remaining: i32 = shelf.select(stock::remaining).first(connection).await?;
    if remaining == 0 {
        return Ok(false);
    }
    update(shelf)
        .set(stock::remaining.eq(remaining - 1))
        .execute(connection)
        .await?;
    Ok(true)
}
