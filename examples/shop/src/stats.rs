//! `GET /stats`: what the database knows of all instances.

use std::collections::BTreeMap;

use serde::Serialize;

use crate::{error::ShopError, instance::Shop};

/// What all instances have done.
#[derive(Debug, Serialize)]
pub struct Stats {
    /// The total of each order.
    orders: BTreeMap<String, i64>,
    payments: i64,
    most_ai_calls_at_once: i64,
}

/// Reads it.
///
/// # Cancel safety
///
/// It changes nothing.
///
/// # Errors
///
/// Fails when the database does not answer.
pub async fn stats(shop: &Shop) -> Result<Stats, ShopError> {
    let client = shop.pool.get().await?;
    let orders = client.query("SELECT id, total FROM shop.orders", &[]).await?;
    let payments = client.query_one("SELECT count(*) FROM shop.payments", &[]).await?;
    let most = client.query_one("SELECT calls FROM shop.ai_most", &[]).await?;
    Ok(Stats {
        orders: orders.iter().map(|row| (row.get(0), row.get(1))).collect(),
        payments: payments.get(0),
        most_ai_calls_at_once: most.get(0),
    })
}
