//! Clients that leave at any moment.

use std::convert::Infallible;

use axum::{Router, body::Body, routing::post};
use http::Request;
use latchwork_tower::OnDisconnect;
use tokio::task::yield_now;
use tokio_test::task;
use tower::{Layer as _, ServiceExt, service_fn};

use super::{
    LockedTx, answer,
    database::{Count, Database},
    layer, request,
};
use crate::support::{Client, Event, WAYS_TO_LEAVE, ask, in_time, serve, stage};

/// Between the polls of the future tasks have their turns, so that the drop comes at every step of beginning,
/// handling and ending.
#[tokio::test]
async fn a_future_that_is_dropped_after_any_number_of_polls_ends_its_transaction_in_order() {
    for on_disconnect in [OnDisconnect::Cancel, OnDisconnect::Complete] {
        for turns in 1..4 {
            let database = Database::default();
            let service =
                layer(&database)
                    .on_disconnect(on_disconnect)
                    .layer(service_fn(async |request: Request<Body>| {
                        let tx = LockedTx::take_from(request.extensions()).unwrap().unwrap();
                        for _ in 0..3 {
                            yield_now().await;
                        }
                        drop(tx);
                        yield_now().await;
                        Ok::<_, Infallible>(answer(200, &[]))
                    }));
            for polls in 0..1000 {
                let before = database.count();
                let mut call = task::spawn(service.clone().oneshot(request()));
                let mut done = false;
                for poll in 0..polls {
                    for _ in 0..if poll == 0 { 0 } else { turns } {
                        yield_now().await;
                    }
                    done = call.poll().is_ready();
                    if done {
                        break;
                    }
                }
                drop(call);
                // What was asked for at the first poll is begun and ended, whenever that is.
                let begun = usize::from(polls > 0);
                let ended = |count: Count| count.committed + count.rolled_back;
                in_time(async {
                    while ended(database.count()) < ended(before) + begun {
                        yield_now().await;
                    }
                })
                .await;
                assert_eq!((database.count().open, database.count().closed), (0, 0));
                if done {
                    break;
                }
                assert!(polls < 999, "it does not end");
            }
            assert!(database.count().committed > 0);
            assert!(
                on_disconnect == OnDisconnect::Complete || database.count().rolled_back > 0,
                "nobody left midway"
            );
        }
    }
}

#[tokio::test]
async fn a_client_that_leaves_rolls_back_or_has_its_request_completed() {
    for how in WAYS_TO_LEAVE {
        for (on_disconnect, seen, ended) in [
            (OnDisconnect::Cancel, Event::Dropped, Count::ROLLED_BACK),
            (OnDisconnect::Complete, Event::Done, Count::COMMITTED),
        ] {
            let database = Database::default();
            let (stage, mut watcher) = stage();
            let handler = move |tx: LockedTx| async move {
                stage.play().await;
                drop(tx);
            };
            let layer = layer(&database).on_disconnect(on_disconnect);
            let address = serve(Router::new().route("/", post(handler).layer(layer))).await;
            let client = Client::asks(address, "POST /", "").await;
            watcher.sees(Event::Entered).await;
            let _rest = client.leave(how).await;
            if on_disconnect == OnDisconnect::Complete {
                watcher.lets_go(1);
            }
            watcher.sees(seen).await;
            assert_eq!(database.settled().await, ended, "{how:?} {on_disconnect:?}");
            watcher.lets_go(1);
            assert_eq!(ask(address, "POST /").await.status(), 200);
        }
    }
}
