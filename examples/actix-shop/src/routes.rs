//! Which middleware is around which route.

use actix_web::{
    Route, guard,
    web::{self, Data, ServiceConfig},
};
use latchwork::{
    actix::{IdempotencyMiddleware, RateLimitMiddleware, SlotMiddleware, TxLockMiddleware},
    postgres::transaction::DeadpoolTx,
};
use shop::{Failure, Shop, rules};

use crate::handlers;

/// The routes of one instance, which its workers share. What is limited here is limited over all instances.
#[derive(Clone)]
pub(crate) struct Routes {
    shop: Data<Shop>,
    in_turn: TxLockMiddleware<DeadpoolTx>,
    few_at_once: SlotMiddleware,
    once: IdempotencyMiddleware<DeadpoolTx>,
    not_too_often: RateLimitMiddleware,
}

impl Routes {
    pub(crate) fn new(shop: &Shop) -> Result<Self, Failure> {
        let transactions = || shop.transactions.clone();
        Ok(Self {
            shop: Data::new(shop.clone()),
            // One charge of an order at a time, in a transaction that has ended before the answer leaves. Others get
            // 409.
            in_turn: TxLockMiddleware::new(transactions(), rules::order())?,
            // A call keeps its slot until its answer was sent, or the client has left. Others get 503.
            few_at_once: SlotMiddleware::global(rules::ai_slots(shop)?),
            // Who repeats a key gets the first answer again.
            once: IdempotencyMiddleware::new(transactions(), rules::customer())?,
            // Counted in the database too, but nothing waits there: if it is away, each instance counts for itself.
            not_too_often: RateLimitMiddleware::new(shop.rates.clone(), rules::searcher(), rules::searches()?)?
                .name("search")?,
        })
    }

    /// Adds them to a worker's app.
    pub(crate) fn add(&self, app: &mut ServiceConfig) {
        let charge = web::resource("/orders/{id}/charge").route(web::post().to(handlers::charge));
        let ask = web::resource("/ai").route(get().to(handlers::ask));
        let pay = web::resource("/payments").route(web::post().to(handlers::pay));
        let find = web::resource("/search").route(get().to(handlers::find));
        let stats = web::resource("/stats").route(get().to(handlers::stats));
        app.app_data(self.shop.clone())
            .service(charge.wrap(self.in_turn.clone()))
            .service(ask.wrap(self.few_at_once.clone()))
            .service(pay.wrap(self.once.clone()))
            .service(find.wrap(self.not_too_often.clone()))
            .service(stats);
    }
}

/// HEAD too, which axum answers where there is a GET.
fn get() -> Route {
    web::route().guard(guard::Any(guard::Get()).or(guard::Head()))
}
