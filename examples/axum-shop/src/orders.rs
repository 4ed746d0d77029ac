//! `POST /orders/{id}/charge?ms=N`: adds an amount to an order's total.

use std::time::Duration;

use axum::{
    Json,
    body::Bytes,
    extract::{Path, Query},
};
use latchwork::{postgres::transaction::PooledTx, tower::LockedTx};
use serde::{Deserialize, Serialize};
use tokio::time::sleep;

use crate::error::Failed;

#[derive(Deserialize)]
pub(crate) struct Pace {
    #[serde(default)]
    ms: u64,
}

#[derive(Deserialize)]
pub(crate) struct Charge {
    amount: u32,
}

#[derive(Serialize)]
pub(crate) struct Charged {
    total: i64,
}

/// Reads the total, takes its time, and writes what it has made of it. Without the lock on the order, charges that run
/// at the same time would undo each other.
pub(crate) async fn charge(
    Path(order): Path<String>,
    Query(pace): Query<Pace>,
    tx: LockedTx<PooledTx>,
    body: Bytes,
) -> Result<Json<Charged>, Failed> {
    // Whatever the Content-Type, so that `curl --data` will do.
    let charge: Charge = serde_json::from_slice(&body)?;
    let row = tx.query_opt(READ, &[&order]).await?;
    let before: i64 = row.map_or(0, |row| row.get(0));
    sleep(Duration::from_millis(pace.ms)).await;
    let total = before + i64::from(charge.amount);
    tx.execute(WRITE, &[&order, &total]).await?;
    // The layer commits. If it cannot, this is not what the client gets.
    Ok(Json(Charged { total }))
}

const READ: &str = "SELECT total FROM shop.orders WHERE id = $1";
const WRITE: &str = "INSERT INTO shop.orders (id, total) VALUES ($1, $2)
    ON CONFLICT (id) DO UPDATE SET total = excluded.total";
