//! `GET /search?q=..`: finds orders.

use serde::{Deserialize, Serialize};

use crate::{error::ShopError, instance::Shop};

/// What to look for.
#[derive(Debug, Deserialize)]
pub struct Search {
    q: String,
}

/// The ids of orders.
#[derive(Debug, Serialize)]
pub struct Found {
    orders: Vec<String>,
}

/// Finds the first orders whose id contains a text.
///
/// # Cancel safety
///
/// It changes nothing.
///
/// # Errors
///
/// Fails when the database does not answer.
pub async fn search(shop: &Shop, search: &Search) -> Result<Found, ShopError> {
    let rows = shop.pool.get().await?.query(FIND, &[&search.q]).await?;
    let orders = rows.iter().map(|row| row.get(0)).collect();
    Ok(Found { orders })
}

const FIND: &str = "SELECT id FROM shop.orders WHERE strpos(id, $1) > 0 ORDER BY id LIMIT 20";
