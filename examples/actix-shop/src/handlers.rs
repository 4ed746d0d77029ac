//! From a request to the shop, and back to a response.

use actix_web::{
    HttpResponse,
    http::header::LOCATION,
    web::{Bytes, Data, Json, Path, Query},
};
use latchwork::{
    actix::{HeldPermit, LockedTx},
    postgres::transaction::PooledTx,
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

/// Works in the transaction that the middleware has opened. The middleware commits it; if it cannot, this is not what
/// the client gets.
pub(crate) async fn charge(
    order: Path<String>,
    pace: Query<Pace>,
    tx: LockedTx<PooledTx>,
    body: Bytes,
) -> Result<Json<Charged>, Failed> {
    Ok(Json(orders::charge(&tx, &order, &pace, &body).await?))
}

/// Answers with the slot and what the model says: when that is complete, or a line for each word as it comes.
pub(crate) async fn ask(shop: Data<Shop>, held: HeldPermit, question: Query<Question>) -> Result<HttpResponse, Failed> {
    let call = Call::begin(&shop, &held, &question)?;
    let mut answer = HttpResponse::Ok();
    if question.is_streamed() {
        return Ok(answer.content_type(Call::LINES).streaming(call.lines()));
    }
    Ok(answer.json(call.whole().await?))
}

/// Works in the transaction that the middleware stores the answer in too.
pub(crate) async fn pay(wanted: Query<Wanted>, tx: LockedTx<PooledTx>, body: Bytes) -> Result<HttpResponse, Failed> {
    let paid = payments::pay(&tx, &wanted, &body).await?;
    let location = (LOCATION, paid.location());
    Ok(HttpResponse::Created().insert_header(location).json(paid))
}

pub(crate) async fn find(shop: Data<Shop>, search: Query<Search>) -> Result<Json<Found>, Failed> {
    Ok(Json(search::search(&shop, &search).await?))
}

pub(crate) async fn stats(shop: Data<Shop>) -> Result<Json<Stats>, Failed> {
    Ok(Json(stats::stats(&shop).await?))
}
