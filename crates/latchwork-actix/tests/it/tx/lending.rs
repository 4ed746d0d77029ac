//! Who may have the transaction, and who takes a lock in it.

use actix_web::{
    App,
    dev::ServiceRequest,
    middleware::{Next, from_fn},
    web,
};
use latchwork_actix::{NoTransaction, TxProvider, tx::CheckOutError};
use latchwork_core::Key;
use latchwork_http::tx::TxRequest;
use tokio::sync::mpsc;

use super::{Middleware, keyed, middleware, post, problem};
use crate::{
    database::{Count, Database, WORK},
    support::LockedTx,
};

const INNER: Key = Key::bigint(2);

fn inner(database: &Database) -> Middleware {
    keyed(database, INNER).join_open()
}

/// Works in its transaction.
async fn work(mut tx: LockedTx) -> &'static str {
    Database::query(&mut tx, WORK, &[]).await.unwrap();
    "done"
}

/// An answer under one middleware in another.
async fn joined(database: &Database, inner: Middleware) -> (u16, String) {
    let resource = web::resource("/").wrap(inner).wrap(middleware(database));
    post!(App::new().service(resource.route(web::post().to(work))))
}

#[actix_web::test]
async fn a_handler_works_on_its_transaction() {
    let database = Database::default();
    let app = App::new().wrap(middleware(&database)).route("/", web::post().to(work));
    assert_eq!(post!(app), (200, "done".to_owned()));
    assert_eq!((database.count(), database.work()), (Count::COMMITTED, 1));
}

#[actix_web::test]
async fn a_handler_can_have_its_work_undone_and_say_200() {
    let database = Database::default();
    let handler = |mut tx: LockedTx| async move {
        Database::query(&mut tx, WORK, &[]).await.unwrap();
        LockedTx::rollback_only(&tx);
        "undone"
    };
    let app = App::new()
        .wrap(middleware(&database))
        .route("/", web::post().to(handler));
    assert_eq!(post!(app).0, 200);
    assert_eq!((database.count(), database.work()), (Count::ROLLED_BACK, 0));
}

#[actix_web::test]
async fn a_middleware_and_the_handler_have_it_one_after_the_other() {
    let database = Database::default();
    let around = from_fn(async |tx: LockedTx, request: ServiceRequest, next: Next<_>| {
        drop(tx);
        let response = next.call(request).await?;
        // And again after the handler.
        drop(LockedTx::take_from(response.request()).unwrap().unwrap());
        Ok(response)
    });
    let resource = web::resource("/").wrap(around).wrap(middleware(&database));
    assert_eq!(post!(App::new().service(resource.route(web::post().to(work)))).0, 200);
    assert_eq!((database.count(), database.work()), (Count::COMMITTED, 1));
}

#[actix_web::test]
async fn whoever_asks_for_it_while_another_has_it_is_told_so() {
    let database = Database::default();
    let around = || {
        from_fn(async |tx: LockedTx, request: ServiceRequest, next: Next<_>| {
            let response = next.call(request).await;
            drop(tx);
            response
        })
    };
    let one = web::resource("/").wrap(around()).wrap(middleware(&database));
    let one = post!(App::new().service(one.route(web::post().to(work))));
    let two = |_: LockedTx, _: LockedTx| async { "two" };
    let two = web::resource("/")
        .wrap(middleware(&database))
        .route(web::post().to(two));
    let two = post!(App::new().service(two));
    for (status, body) in [one, two] {
        assert_eq!(status, 500);
        assert!(
            body.contains(&problem("transaction-in-use")) && body.contains("drop the first LockedTx"),
            "{body}"
        );
    }
    let why = |tx: Result<LockedTx, NoTransaction>| async {
        let error = tx.unwrap_err();
        assert!(
            matches!(
                error,
                NoTransaction::Taken {
                    error: CheckOutError::InUse,
                    ..
                }
            ),
            "{error:?}"
        );
        "told"
    };
    let why = web::resource("/")
        .wrap(around())
        .wrap(middleware(&database))
        .route(web::post().to(why));
    assert_eq!(post!(App::new().service(why)).0, 200);
    let ended = Count {
        rolled_back: 2,
        committed: 1,
        ..Count::NONE
    };
    assert_eq!(database.count(), ended);
}

#[actix_web::test]
async fn a_handler_without_a_middleware_is_told_what_is_missing() {
    let (status, body) = post!(App::new().route("/", web::post().to(work)));
    assert_eq!(status, 500);
    assert!(body.contains("TxLockMiddleware"), "{body}");
    let maybe = |tx: Option<LockedTx>| async move {
        assert!(tx.is_none());
        "without"
    };
    assert_eq!(post!(App::new().route("/", web::post().to(maybe))).0, 200);
}

#[actix_web::test]
async fn nobody_gets_it_after_the_end() {
    let database = Database::default();
    let (to, mut seen) = mpsc::unbounded_channel();
    let after = from_fn(move |request: ServiceRequest, next: Next<_>| {
        let to = to.clone();
        async move {
            let response = next.call(request).await?;
            to.send(LockedTx::take_from(response.request()).map(|_| ())).unwrap();
            Ok(response)
        }
    });
    let handler = || async { "done" };
    let resource = web::resource("/").wrap(middleware(&database)).wrap(after);
    assert_eq!(
        post!(App::new().service(resource.route(web::post().to(handler)))).0,
        200
    );
    assert_eq!(seen.recv().await, Some(Err(CheckOutError::Ended)));
    assert_eq!(database.count(), Count::COMMITTED);
}

#[actix_web::test]
async fn two_middlewares_are_one_transaction_with_two_locks() {
    let database = Database::default();
    assert_eq!(joined(&database, inner(&database)).await.0, 200);
    assert_eq!(
        (database.count(), database.asked(), database.work()),
        (Count::COMMITTED, 1, 1)
    );
}

#[actix_web::test]
async fn what_the_inner_middleware_does_not_commit_the_outer_does_not_either() {
    let database = Database::default();
    assert_eq!(joined(&database, inner(&database).rollback_only()).await.0, 200);
    assert_eq!((database.count(), database.work()), (Count::ROLLED_BACK, 0));
}

#[actix_web::test]
async fn an_inner_lock_that_others_have_is_409_and_rolls_back() {
    let database = Database::default();
    let held = database.begin(TxRequest::new(INNER)).await.unwrap().unwrap();
    let (status, body) = joined(&database, inner(&database)).await;
    assert_eq!(status, 409);
    assert!(body.contains(&problem("lock-busy")), "{body}");
    assert_eq!(database.count().rolled_back, 1);
    drop(held);
    assert_eq!(joined(&database, inner(&database)).await.0, 200);
}

#[actix_web::test]
async fn without_a_transaction_to_join_the_service_is_set_up_wrong() {
    let database = Database::default();
    let (status, body) = post!(App::new().wrap(inner(&database)).route("/", web::post().to(work)));
    assert_eq!(status, 500);
    assert!(body.contains("no layer outside has opened a transaction"), "{body}");
    assert_eq!(database.asked(), 0);
}
