//! `POST /payments?ms=N[&fail=1]`: takes a payment, once for each `Idempotency-Key`.

use std::time::Duration;

use axum::{
    Json,
    body::Bytes,
    extract::Query,
    http::{StatusCode, header::LOCATION},
    response::{IntoResponse, Response},
};
use latchwork::{postgres::transaction::PooledTx, tower::LockedTx};
use serde::{Deserialize, Serialize};
use tokio::time::sleep;

use crate::error::Failed;

#[derive(Deserialize)]
pub(crate) struct Wanted {
    #[serde(default)]
    ms: u64,
    /// Whether to fail when the row is there.
    #[serde(default)]
    fail: u8,
}

#[derive(Deserialize)]
pub(crate) struct Payment {
    amount: u32,
}

#[derive(Serialize)]
struct Paid {
    payment: i64,
    amount: u32,
}

/// Inserts a row in the transaction that the answer is stored in too: there are both in the end, or neither.
pub(crate) async fn pay(Query(wanted): Query<Wanted>, tx: LockedTx<PooledTx>, body: Bytes) -> Result<Response, Failed> {
    let Payment { amount } = serde_json::from_slice(&body)?;
    let row = tx.query_one(INSERT, &[&i64::from(amount)]).await?;
    let payment: i64 = row.get(0);
    sleep(Duration::from_millis(wanted.ms)).await;
    if wanted.fail != 0 {
        // Not kept, and rolled back: the same key may be tried again.
        return Ok((
            StatusCode::INTERNAL_SERVER_ERROR,
            "the payment failed, as was asked for\n",
        )
            .into_response());
    }
    let location = [(LOCATION, format!("/payments/{payment}"))];
    Ok((StatusCode::CREATED, location, Json(Paid { payment, amount })).into_response())
}

const INSERT: &str = "INSERT INTO shop.payments (amount) VALUES ($1) RETURNING id";
