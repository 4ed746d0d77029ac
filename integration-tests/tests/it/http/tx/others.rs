//! The same keys in other transactions, of the same library and of others.

use latchwork_core::{Key, Namespace};
use latchwork_http::tx::{TxProvider as _, TxRequest};

use super::{Library, Shop, ask, is_problem, servers::Server};
use crate::{
    http::library::{Bb8, Deadpool, Diesel, DieselAsync, SeaOrm, Sqlx, Tx},
    onlooker::assert_quiet,
};

async fn a_key_that_a_transaction_of_any_library_has_is_409_until_that_ends<S: Server>() {
    let shop = Shop::open::<S>().await;
    is_409_until_it_ends::<Deadpool>(&shop).await;
    is_409_until_it_ends::<Sqlx>(&shop).await;
    is_409_until_it_ends::<SeaOrm>(&shop).await;
    is_409_until_it_ends::<DieselAsync>(&shop).await;
    is_409_until_it_ends::<Bb8>(&shop).await;
    is_409_until_it_ends::<Diesel>(&shop).await;
    assert_quiet(&shop.cluster);
    shop.close().await;
}

async fn is_409_until_it_ends<L: Library>(shop: &Shop) {
    let other = L::connect(&shop.cluster.url(), 1);
    let stored = shop.charges().await;
    for (commits, stored) in [(true, stored + 1), (false, stored + 2)] {
        let tx: Tx<L> = other.begin(TxRequest::new(key())).await.unwrap().unwrap();
        let refused = ask(shop.one.address, "POST /status/200").await;
        assert!(is_problem(&refused, 409, "lock-busy"), "{refused:?}");
        let ended = if commits {
            L::Provider::commit(tx).await
        } else {
            L::Provider::rollback(tx).await
        };
        ended.unwrap();
        // At once.
        assert_eq!(ask(shop.one.address, "POST /status/200").await.status(), 200);
        assert_eq!(shop.charges().await, stored);
    }
}

/// What the route `/status/{code}` locks.
fn key() -> Key {
    Namespace::unnamed().key("status").unwrap()
}

on_each_framework_and_library!(
    crate::http::tx::servers:
    a_key_that_a_transaction_of_any_library_has_is_409_until_that_ends,
);
