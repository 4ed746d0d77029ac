//! The last 50 items and 200 buyers, with diesel: each buyer a thread.

mod schema;

use std::{process::ExitCode, thread, time::Duration};

use diesel::{
    PgConnection, QueryDsl, QueryResult, RunQueryDsl,
    prelude::ExpressionMethods,
    r2d2::{ConnectionManager, Pool},
    update,
};
use inventory::{Failure, ITEM};
use latchwork_diesel::{Key, LockedTransactionExt as _, XactOptions};

use crate::schema::stock;

type Connections = Pool<ConnectionManager<PgConnection>>;

fn main() -> ExitCode {
    inventory::run(buy)
}

fn buy(url: &str, buyers: u32) -> Result<u32, Failure> {
    let pool = Pool::builder().max_size(16).build(ConnectionManager::new(url))?;
    thread::scope(|scope| {
        let buying: Vec<_> = (0..buyers).map(|_| scope.spawn(|| reserve(&pool))).collect();
        let mut bought = 0;
        for buyer in buying {
            bought += u32::from(buyer.join().map_err(|_| "a buyer has panicked")??);
        }
        Ok(bought)
    })
}

/// Takes an item, if there is one.
fn reserve(pool: &Connections) -> Result<bool, Failure> {
    // One at a time for each row of the table, in all processes.
    let key = Key::row("stock", ITEM)?;
    let options = XactOptions::within(Duration::from_secs(30));
    Ok(pool
        .get()?
        .locked_transaction(key, options, |connection| take_one(connection))?)
}

fn take_one(connection: &mut PgConnection) -> QueryResult<bool> {
    let shelf = stock::table.find(ITEM);
    let remaining: i32 = shelf.select(stock::remaining).first(connection)?;
    if remaining == 0 {
        return Ok(false);
    }
    update(shelf)
        .set(stock::remaining.eq(remaining - 1))
        .execute(connection)?;
    Ok(true)
}
