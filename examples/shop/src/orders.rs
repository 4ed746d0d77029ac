//! `POST /orders/{id}/charge?ms=N`: adds an amount to an order's total.

use std::time::Duration;

use latchwork::postgres::transaction::PooledTx;
use serde::{Deserialize, Serialize};
use tokio::time::sleep;

use crate::error::ShopError;

/// How long a charge takes.
#[derive(Debug, Deserialize)]
pub struct Pace {
    #[serde(default)]
    ms: u64,
}

/// What the order has come to.
#[derive(Debug, Serialize)]
pub struct Charged {
    total: i64,
}

#[derive(Deserialize)]
struct Charge {
    amount: u32,
}

/// Reads the total, takes its time, and writes what it has made of it. Without the lock on the order, charges that run
/// at the same time would undo each other.
///
/// # Cancel safety
///
/// Dropped midway, it leaves the transaction as it is: to be rolled back.
///
/// # Errors
///
/// Fails when the body is no charge, or a statement fails.
pub async fn charge(tx: &PooledTx, order: &str, pace: &Pace, body: &[u8]) -> Result<Charged, ShopError> {
    // Whatever the Content-Type, so that `curl --data` will do.
    let charge: Charge = serde_json::from_slice(body)?;
    let row = tx.query_opt(READ, &[&order]).await?;
    let before: i64 = row.map_or(0, |row| row.get(0));
    sleep(Duration::from_millis(pace.ms)).await;
    let total = before + i64::from(charge.amount);
    tx.execute(WRITE, &[&order, &total]).await?;
    Ok(Charged { total })
}

const READ: &str = "SELECT total FROM shop.orders WHERE id = $1";
const WRITE: &str = "INSERT INTO shop.orders (id, total) VALUES ($1, $2)
    ON CONFLICT (id) DO UPDATE SET total = excluded.total";
