//! The last 50 items and 200 buyers, with sqlx.

use std::{process::ExitCode, time::Duration};

use inventory::{Failure, ITEM};
use latchwork_sqlx::{Key, LockedTransactionExt as _, XactOptions};
use sqlx::{PgPool, Postgres, Transaction, postgres::PgPoolOptions, query, query_scalar};
use tokio::{runtime::Runtime, task::JoinSet};

fn main() -> ExitCode {
    inventory::run(|url, buyers| Runtime::new()?.block_on(buy(url, buyers)))
}

async fn buy(url: &str, buyers: u32) -> Result<u32, Failure> {
    let pool = PgPoolOptions::new().max_connections(16).connect(url).await?;
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
async fn reserve(pool: PgPool) -> Result<bool, Failure> {
    // One at a time for each row of the table, in all processes.
    let key = Key::row("stock", ITEM)?;
    let options = XactOptions::within(Duration::from_secs(30));
    Ok(pool.locked_transaction(key, options, take_one).await?)
}

async fn take_one(tx: &mut Transaction<'_, Postgres>) -> Result<bool, sqlx::Error> {
    let remaining: i32 = query_scalar("SELECT remaining FROM stock WHERE item = $1")
        .bind(ITEM)
        .fetch_one(&mut **tx)
        .await?;
    if remaining == 0 {
        return Ok(false);
    }
    query("UPDATE stock SET remaining = $1 WHERE item = $2")
        .bind(remaining - 1)
        .bind(ITEM)
        .execute(&mut **tx)
        .await?;
    Ok(true)
}
