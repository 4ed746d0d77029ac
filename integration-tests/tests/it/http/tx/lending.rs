//! Who has the transaction of a request.

use super::{Event, Shop, ask, is_problem, servers::Server};
use crate::onlooker::assert_quiet;

async fn a_transaction_that_a_task_still_has_is_500_and_stores_nothing<S: Server>() {
    let mut shop = Shop::open::<S>().await;
    let answer = ask(shop.one.address, "POST /orders/1/spawned").await;
    assert!(is_problem(&answer, 500, "transaction-in-use"), "{answer:?}");
    shop.one.sees(Event::Entered).await;
    // The task has it, and so its lock.
    assert_eq!(ask(shop.other.address, "POST /orders/1/charge").await.status(), 409);
    shop.one.lets_go(1);
    shop.one.sees(Event::Done).await;
    shop.is_clean().await;
    assert_eq!(shop.charges().await, 0);
    assert_quiet(&shop.cluster);
    shop.close().await;
}

async fn a_middleware_and_the_handler_work_on_it_by_turns_and_not_at_once<S: Server>() {
    let shop = Shop::with_pools_of::<S>(1).await;
    assert_eq!(ask(shop.one.address, "POST /by-turns").await.status(), 200);
    assert_eq!(shop.charges().await, 2);
    let overlap = ask(shop.one.address, "POST /overlap").await;
    assert!(is_problem(&overlap, 500, "transaction-in-use"), "{overlap:?}");
    assert!(overlap.0.contains("drop the first LockedTx"), "{overlap:?}");
    assert_eq!(shop.charges().await, 2);
    // The only connection of the pool is free.
    assert_eq!(ask(shop.one.address, "POST /by-turns").await.status(), 200);
    assert_quiet(&shop.cluster);
    shop.close().await;
}

on_each_framework_and_library!(
    crate::http::tx::servers:
    a_transaction_that_a_task_still_has_is_500_and_stores_nothing,
    a_middleware_and_the_handler_work_on_it_by_turns_and_not_at_once,
);
