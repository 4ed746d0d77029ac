//! From a request to the shop, and back to a response.

use axum::{
    Json,
    body::{Body, Bytes},
    extract::{Path, Query, State},
    http::{
        StatusCode,
        header::{CONTENT_TYPE, LOCATION},
    },
    response::{IntoResponse, Response},
};
use latchwork::{
    postgres::transaction::PooledTx,
    tower::{HeldPermit, LockedTx},
};
use shop::{
    Shop,
    ai::{Call, Question},
    orders::{self, Charged, Pace},
    payments::{self, Wanted},
    search::{self, Found, Search},
    stats::{self, Stats},
};

use crate::error::Failed;

/// Works in the transaction that the layer has opened. The layer commits it; if it cannot, this is not what the client
/// gets.
pub(crate) async fn charge(
    Path(order): Path<String>,
    Query(pace): Query<Pace>,
    tx: LockedTx<PooledTx>,
    body: Bytes,
) -> Result<Json<Charged>, Failed> {
    Ok(Json(orders::charge(&tx, &order, &pace, &body).await?))
}

/// Answers with the slot and what the model says: when that is complete, or a line for each word as it comes.
pub(crate) async fn ask(
    State(shop): State<Shop>,
    held: HeldPermit,
    Query(question): Query<Question>,
) -> Result<Response, Failed> {
    let call = Call::begin(&shop, &held, &question)?;
    if question.is_streamed() {
        let lines = Body::from_stream(call.lines());
        return Ok(([(CONTENT_TYPE, Call::LINES)], lines).into_response());
    }
    Ok(Json(call.whole().await?).into_response())
}

/// Works in the transaction that the layer stores the answer in too.
pub(crate) async fn pay(
    Query(wanted): Query<Wanted>,
    tx: LockedTx<PooledTx>,
    body: Bytes,
) -> Result<impl IntoResponse, Failed> {
    let paid = payments::pay(&tx, &wanted, &body).await?;
    Ok((StatusCode::CREATED, [(LOCATION, paid.location())], Json(paid)))
}

pub(crate) async fn find(State(shop): State<Shop>, Query(search): Query<Search>) -> Result<Json<Found>, Failed> {
    Ok(Json(search::search(&shop, &search).await?))
}

pub(crate) async fn stats(State(shop): State<Shop>) -> Result<Json<Stats>, Failed> {
    Ok(Json(stats::stats(&shop).await?))
}
