//! Clients that leave at any moment.

use std::{
    pin::pin,
    task::{Context, Waker},
};

use actix_web::{
    App,
    dev::Service,
    test::{TestRequest, init_service},
    web,
};
use latchwork_actix::OnDisconnect;
use latchwork_harness::http::{Client, Event, Leave, Stage, ask, in_time, stage};
use tokio::task::yield_now;

use super::middleware;
use crate::{
    database::{Count, Database},
    support::{HalfClosed, LockedTx, serve_with},
};

/// Between the polls of the future tasks have their turns, so that the drop comes at every step of beginning,
/// handling and ending.
#[actix_web::test]
async fn a_future_that_is_dropped_after_any_number_of_polls_ends_its_transaction_in_order() {
    for on_disconnect in [OnDisconnect::Cancel, OnDisconnect::Complete] {
        for turns in 1..4 {
            let database = Database::default();
            let handler = |tx: LockedTx| async {
                for _ in 0..3 {
                    yield_now().await;
                }
                drop(tx);
                yield_now().await;
                "done"
            };
            let middleware = middleware(&database).on_disconnect(on_disconnect);
            let app = init_service(App::new().wrap(middleware).route("/", web::post().to(handler))).await;
            for polls in 0..1000 {
                let before = database.count();
                let done = {
                    let mut call = pin!(app.call(TestRequest::post().to_request()));
                    let mut context = Context::from_waker(Waker::noop());
                    let mut done = false;
                    for _ in 0..polls {
                        done = call.as_mut().poll(&mut context).is_ready();
                        if done {
                            break;
                        }
                        for _ in 0..turns {
                            yield_now().await;
                        }
                    }
                    done
                };
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

async fn play(tx: LockedTx, stage: web::Data<Stage>) -> &'static str {
    stage.play().await;
    drop(tx);
    "done"
}

#[actix_web::test]
async fn a_client_that_is_seen_to_leave_rolls_back_or_has_its_request_completed() {
    for (half_closed, how) in [(HalfClosed::Allowed, Leave::Rst), (HalfClosed::IsGone, Leave::Fin)] {
        for (on_disconnect, seen, ended) in [
            (OnDisconnect::Cancel, Event::Dropped, Count::ROLLED_BACK),
            (OnDisconnect::Complete, Event::Done, Count::COMMITTED),
        ] {
            let database = Database::default();
            let (stage, mut watcher) = stage();
            let middleware = middleware(&database).on_disconnect(on_disconnect);
            let address = serve_with(half_closed, move |routes| {
                let resource = web::resource("/").wrap(middleware.clone());
                routes
                    .app_data(web::Data::new(stage.clone()))
                    .service(resource.route(web::post().to(play)));
            });
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
