//! Requests that may be sent again, where the service inside fails. Everything else is in `integration-tests`, on
//! PostgreSQL.

use std::{
    convert::Infallible,
    future::{pending, ready},
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    task::{Context, Poll},
};

use bytes::Bytes;
use http::{Request, Response};
use http_body::{Body, Frame, SizeHint};
use http_body_util::{BodyExt, Full};
use latchwork_core::{Key, Locks, memory::MemoryServer};
use latchwork_harness::database::{Database, Says, WORK};
use latchwork_tower::{
    IdempotencyLayer, LockLayer, LockedTx, OnDisconnect, PolicyBody, TxLockLayer, TxProvider, key::header,
};
use tokio::task::yield_now;
use tokio_test::task;
use tower::{BoxError, Service, ServiceBuilder, ServiceExt, service_fn};

use crate::support::in_time;

type Asked = Request<PolicyBody<Full<Bytes>>>;

fn layer(database: &Database) -> IdempotencyLayer<Database> {
    IdempotencyLayer::new(database.clone(), header("x-user")).unwrap()
}

fn payment() -> Request<Full<Bytes>> {
    let request = Request::post("/payments")
        .header("idempotency-key", "k")
        .header("x-user", "ann");
    request.body(Full::default()).unwrap()
}

async fn work(request: &Asked) {
    if let Some(mut tx) = LockedTx::take_from(request.extensions()).unwrap() {
        Database::query(&mut tx, WORK, &[]).await.unwrap();
    }
}

/// The status, and the problem's type.
async fn answer<S, R>(service: &mut S) -> (u16, String)
where
    S: Service<Request<Full<Bytes>>, Response = Response<R>, Error: std::fmt::Debug>,
    R: Body<Error: std::fmt::Debug>,
{
    let answer = service.ready().await.unwrap().call(payment()).await.unwrap();
    let status = answer.status().as_u16();
    let body = answer.into_body().collect().await.unwrap().to_bytes();
    (status, String::from_utf8(body.to_vec()).unwrap())
}

#[tokio::test]
async fn a_service_that_fails_has_its_work_undone_before_its_error_is_seen_and_runs_again() {
    let database = Database::default();
    let mut fails = failing(layer(&database));
    for _ in 0..2 {
        let failed = fails.ready().await.unwrap().call(payment()).await;
        assert_eq!(failed.unwrap_err().to_string(), "as the test wants");
        assert_eq!(database.count().open, 0);
    }
    assert_eq!((database.work(), database.count().closed), (0, 0));
}

fn failing(
    layer: IdempotencyLayer<Database>,
) -> impl Service<Request<Full<Bytes>>, Response = Response<PolicyBody<Full<Bytes>>>, Error = BoxError> {
    let fails = service_fn(async |request: Asked| {
        work(&request).await;
        Err::<Response<Full<Bytes>>, BoxError>("as the test wants".into())
    });
    ServiceBuilder::new().layer(layer).service(fails)
}

/// Whoever works outside of the database and fails may have done it.
#[tokio::test]
async fn work_outside_the_database_that_failed_or_lost_its_lock_does_not_run_again() {
    let external = || layer(&Database::default()).external(Locks::in_memory());
    let mut fails = failing(external());
    fails.ready().await.unwrap().call(payment()).await.err().unwrap();
    assert_eq!(answer(&mut fails).await.0, 409);

    let lost = MemoryServer::new();
    let lock = LockLayer::new(lost.locks(), Key::bigint(1)).unwrap();
    let mut locked = ServiceBuilder::new().layer(external()).layer(lock).service(service_fn({
        let lost = lost.clone();
        move |_| {
            lost.end_sessions();
            pending::<Result<Response<Full<Bytes>>, Infallible>>()
        }
    }));
    for (status, kind) in [(503, "lock-lost"), (409, "idempotency-unknown")] {
        let (seen, problem) = answer(&mut locked).await;
        assert_eq!(seen, status, "{problem}");
        assert!(problem.contains(kind), "{problem}");
    }
}

/// The handler has run, whatever became of its transaction.
#[tokio::test]
async fn work_outside_the_database_beside_a_transaction_that_was_not_stored_does_not_run_again() {
    for (says, ended) in [
        (Says::Aborted, (500, "transaction-failed")),
        (Says::Unknown, (500, "transaction-unknown")),
        (Says::Unavailable, (503, "transaction-lost")),
    ] {
        let external = layer(&Database::default()).external(Locks::in_memory());
        let inner = TxLockLayer::<Database>::new(Database::default().commits(says), Key::bigint(1)).unwrap();
        let handler = service_fn(|_| ready(Ok::<_, Infallible>(Response::new(Full::<Bytes>::default()))));
        let mut both = ServiceBuilder::new().layer(external).layer(inner).service(handler);
        for (status, kind) in [ended, (409, "idempotency-unknown")] {
            let (seen, problem) = answer(&mut both).await;
            assert_eq!(seen, status, "{problem}");
            assert!(problem.contains(kind), "{problem}");
        }
    }
}

/// Between the last poll and the drop tasks have their turns, so that a claim is stored also when nobody takes it.
#[tokio::test]
async fn who_leaves_before_work_outside_the_database_has_begun_leaves_no_claim() {
    for polls in 1..1000 {
        for turns in 0..20 {
            let runs = Arc::new(AtomicUsize::new(0));
            let handler = service_fn({
                let runs = Arc::clone(&runs);
                move |_: Asked| {
                    runs.fetch_add(1, Ordering::Relaxed);
                    ready(Ok::<_, Infallible>(Response::new(Full::<Bytes>::default())))
                }
            });
            let external = layer(&Database::default()).external(Locks::in_memory());
            let external = external.on_disconnect(OnDisconnect::Cancel);
            let mut counted = ServiceBuilder::new().layer(external).service(handler);
            let mut call = task::spawn(counted.ready().await.unwrap().call(payment()));
            for _ in 0..polls {
                let _ = call.poll();
                yield_now().await;
            }
            for _ in 0..turns {
                yield_now().await;
            }
            drop(call);
            if runs.load(Ordering::Relaxed) > 0 {
                assert!(polls > 3, "nobody left before");
                return;
            }
            in_time(async {
                loop {
                    let (status, problem) = answer(&mut counted).await;
                    if status == 200 {
                        break;
                    }
                    assert!(problem.contains("idempotency-in-flight"), "{polls} {turns} {problem}");
                    yield_now().await;
                }
            })
            .await;
        }
    }
}

/// A body of 8 bytes that breaks off at once.
struct Broken;

impl Body for Broken {
    type Data = Bytes;
    type Error = std::io::Error;

    fn poll_frame(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, std::io::Error>>> {
        Poll::Ready(Some(Err(std::io::Error::other("as the test wants"))))
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(8)
    }
}

#[tokio::test]
async fn a_response_that_breaks_is_not_sent_and_only_work_in_its_transaction_is_said_to_be_undone() {
    let database = Database::default();
    for (layer, answers) in [
        (
            layer(&database),
            [(500, "transaction-failed"), (500, "transaction-failed")],
        ),
        (
            layer(&database).external(Locks::in_memory()),
            [(500, "transaction-unknown"), (409, "idempotency-unknown")],
        ),
    ] {
        let mut breaks = ServiceBuilder::new()
            .layer(layer)
            .service(service_fn(async |request: Asked| {
                work(&request).await;
                Ok::<_, Infallible>(Response::new(Broken))
            }));
        for (status, kind) in answers {
            let (seen, problem) = answer(&mut breaks).await;
            assert_eq!(seen, status, "{problem}");
            assert!(problem.contains(kind), "{problem}");
        }
    }
    assert_eq!(database.work(), 0);
    let count = database.settled().await;
    assert_eq!((count.rolled_back, count.closed), (3, 0));
}
