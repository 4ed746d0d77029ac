//! Who may do what, and when: the routes and their layers.

use axum::{
    Router,
    routing::{get, post},
};
use latchwork::{
    postgres::transaction::DeadpoolTx,
    rate::Quota,
    tower::{
        IdempotencyLayer, RateLimitLayer, RequestHead, SlotLayer, TxLockLayer,
        key::{ExtractError, ExtractKey, KeyParts, client, header, param},
    },
};
use shop::{Failure, Shop};

use crate::{ai, orders, payments, search, stats};

/// How many AI calls may run at once, over all instances.
const AI_SLOTS: u32 = 5;

/// The routes of one instance. What is limited here is limited over all of them.
pub(crate) fn router(shop: &Shop) -> Result<Router, Failure> {
    // One charge of an order at a time, in a transaction that has ended before the answer leaves. Others get 409.
    let in_turn = TxLockLayer::<DeadpoolTx>::new(shop.transactions.clone(), ("order", param("id")))?;
    // A call keeps its slot until its answer was sent, or the client has left. Others get 503.
    let few_at_once = SlotLayer::global(shop.locks.slots("ai", AI_SLOTS)?);
    // Who repeats a key gets the first answer again. Keys of different customers have nothing to do with each other; a
    // real shop takes the customer from its authentication, and not from a header that anybody can send.
    let once = IdempotencyLayer::<DeadpoolTx>::new(shop.transactions.clone(), header(API_KEY).optional())?;
    // Counted in the database too, but nothing waits there: if it is away, each instance counts for itself.
    let quota = Quota::per_second(10)?.with_burst(20)?;
    let not_too_often = RateLimitLayer::new(shop.rates.clone(), ("search", Customer), quota)?.name("search")?;

    Ok(Router::new()
        .route("/orders/{id}/charge", post(orders::charge).layer(in_turn))
        .route("/ai", get(ai::ask).layer(few_at_once))
        .route("/payments", post(payments::pay).layer(once))
        .route("/search", get(search::search).layer(not_too_often))
        .route("/stats", get(stats::stats))
        .with_state(shop.clone()))
}

/// Who asks: the API key, or the address of those who have none.
#[derive(Debug)]
struct Customer;

impl ExtractKey<RequestHead> for Customer {
    fn extract(&self, head: &RequestHead, parts: &mut KeyParts) -> Result<Option<()>, ExtractError> {
        // The words keep an address apart from a key that looks like one.
        if head.headers.contains_key(API_KEY) {
            ("api key", header(API_KEY)).extract(head, parts)
        } else {
            ("address", client()).extract(head, parts)
        }
    }
}

const API_KEY: &str = "x-api-key";
