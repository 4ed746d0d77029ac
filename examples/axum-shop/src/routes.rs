//! Which layer is around which route.

use axum::{
    Router,
    routing::{get, post},
};
use latchwork::{
    postgres::transaction::DeadpoolTx,
    tower::{IdempotencyLayer, RateLimitLayer, SlotLayer, TxLockLayer},
};
use shop::{Failure, Shop, rules};

use crate::handlers;

/// The routes of one instance. What is limited here is limited over all of them.
pub(crate) fn router(shop: &Shop) -> Result<Router, Failure> {
    // One charge of an order at a time, in a transaction that has ended before the answer leaves. Others get 409.
    let in_turn = TxLockLayer::<DeadpoolTx>::new(shop.transactions.clone(), rules::order())?;
    // A call keeps its slot until its answer was sent, or the client has left. Others get 503.
    let few_at_once = SlotLayer::global(rules::ai_slots(shop)?);
    // Who repeats a key gets the first answer again.
    let once = IdempotencyLayer::<DeadpoolTx>::new(shop.transactions.clone(), rules::customer())?;
    // Counted in the database too, but nothing waits there: if it is away, each instance counts for itself.
    let not_too_often =
        RateLimitLayer::new(shop.rates.clone(), rules::searcher(), rules::searches()?)?.name("search")?;

    Ok(Router::new()
        .route("/orders/{id}/charge", post(handlers::charge).layer(in_turn))
        .route("/ai", get(handlers::ask).layer(few_at_once))
        .route("/payments", post(handlers::pay).layer(once))
        .route("/search", get(handlers::find).layer(not_too_often))
        .route("/stats", get(handlers::stats))
        .with_state(shop.clone()))
}
