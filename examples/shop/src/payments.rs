//! `POST /payments?ms=N[&fail=1]`: takes a payment, once for each `Idempotency-Key`.

use std::time::Duration;

use latchwork::postgres::transaction::PooledTx;
use serde::{Deserialize, Serialize};
use tokio::time::sleep;

use crate::error::ShopError;

/// How a payment goes.
#[derive(Debug, Deserialize)]
pub struct Wanted {
    #[serde(default)]
    ms: u64,
    /// Whether to fail when the row is there.
    #[serde(default)]
    fail: u8,
}

/// A payment that was made.
#[derive(Debug, Serialize)]
pub struct Paid {
    payment: i64,
    amount: u32,
}

impl Paid {
    /// Where it is to be found.
    #[must_use]
    pub fn location(&self) -> String {
        format!("/payments/{}", self.payment)
    }
}

#[derive(Deserialize)]
struct Payment {
    amount: u32,
}

/// Inserts a row in the transaction that the answer is stored in too: there are both in the end, or neither.
///
/// # Cancel safety
///
/// Dropped midway, it leaves the transaction as it is: to be rolled back.
///
/// # Errors
///
/// Fails when the body is no payment, a statement fails, or failure was asked for. The answer to that is not kept, and
/// the row goes: the same key may be tried again.
pub async fn pay(tx: &PooledTx, wanted: &Wanted, body: &[u8]) -> Result<Paid, ShopError> {
    let Payment { amount } = serde_json::from_slice(body)?;
    let row = tx.query_one(INSERT, &[&i64::from(amount)]).await?;
    let payment = row.get(0);
    sleep(Duration::from_millis(wanted.ms)).await;
    if wanted.fail != 0 {
        return Err(ShopError::AskedToFail);
    }
    Ok(Paid { payment, amount })
}

const INSERT: &str = "INSERT INTO shop.payments (amount) VALUES ($1) RETURNING id";
