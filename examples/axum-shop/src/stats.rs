//! `GET /stats`: what the database knows of all instances.

use std::collections::BTreeMap;

use axum::{Json, extract::State};
use serde::Serialize;
use shop::Shop;

use crate::error::Failed;

#[derive(Serialize)]
pub(crate) struct Stats {
    /// The total of each order.
    orders: BTreeMap<String, i64>,
    payments: i64,
    most_ai_calls_at_once: i64,
}

pub(crate) async fn stats(State(shop): State<Shop>) -> Result<Json<Stats>, Failed> {
    let client = shop.pool.get().await?;
    let orders = client.query("SELECT id, total FROM shop.orders", &[]).await?;
    let payments = client.query_one("SELECT count(*) FROM shop.payments", &[]).await?;
    let most = client.query_one("SELECT calls FROM shop.ai_most", &[]).await?;
    Ok(Json(Stats {
        orders: orders.iter().map(|row| (row.get(0), row.get(1))).collect(),
        payments: payments.get(0),
        most_ai_calls_at_once: most.get(0),
    }))
}
