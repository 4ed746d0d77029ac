//! `GET /search?q=..`: finds orders.

use axum::{
    Json,
    extract::{Query, State},
};
use serde::{Deserialize, Serialize};
use shop::Shop;

use crate::error::Failed;

#[derive(Deserialize)]
pub(crate) struct Search {
    q: String,
}

#[derive(Serialize)]
pub(crate) struct Found {
    orders: Vec<String>,
}

/// Finds the first orders whose id contains a text.
pub(crate) async fn search(State(shop): State<Shop>, Query(search): Query<Search>) -> Result<Json<Found>, Failed> {
    let rows = shop.pool.get().await?.query(FIND, &[&search.q]).await?;
    let orders = rows.iter().map(|row| row.get(0)).collect();
    Ok(Json(Found { orders }))
}

const FIND: &str = "SELECT id FROM shop.orders WHERE strpos(id, $1) > 0 ORDER BY id LIMIT 20";
