//! Who is let in, and what the others are answered.

use std::{future::Future, time::Duration};

use bytes::Bytes;
use http::{Request, Response, StatusCode};
use latchwork_core::{Guard, Key, Locks, Mode, Permit, engine::EngineErrorKind};
use latchwork_http::{
    Capacity, LockMode, LockPolicy, Rejection, RejectionKind, ResponseFormat, SlotPolicy,
    key::{header, segment},
};

use crate::dead::{failing, silent};

type Head = Request<()>;

fn request(method: &str, path: &str) -> Head {
    Request::builder().method(method).uri(path).body(()).unwrap()
}

async fn lock(policy: &LockPolicy<Head>, method: &str, path: &str) -> Result<Guard, Rejection> {
    policy.attempt(&request(method, path))?.expect("it needs a lock").await
}

async fn slot(policy: &SlotPolicy<Head>, path: &str) -> Result<Permit, Rejection> {
    policy.attempt(&request("GET", path))?.expect("it needs a slot").await
}

async fn refusal<T: std::fmt::Debug>(attempt: impl Future<Output = Result<T, Rejection>>) -> (u16, RejectionKind) {
    let rejection = attempt.await.unwrap_err();
    (rejection.status().as_u16(), rejection.kind())
}

const LOCK_BUSY: (u16, RejectionKind) = (409, RejectionKind::LockBusy);
const UNAVAILABLE: (u16, RejectionKind) = (503, RejectionKind::Unavailable);

#[tokio::test]
async fn one_request_a_key_is_let_in_and_the_next_when_it_has_ended() {
    let policy = LockPolicy::new(Locks::in_memory(), ("order", segment(0))).unwrap();
    let first = lock(&policy, "POST", "/1").await.unwrap();
    assert_eq!(refusal(lock(&policy, "POST", "/1")).await, LOCK_BUSY);
    drop(lock(&policy, "POST", "/2").await.unwrap());
    drop(first);
    drop(lock(&policy, "POST", "/1").await.unwrap());
}

#[tokio::test]
async fn modes_share_or_exclude() {
    let locks = Locks::in_memory();
    let policy = |mode| LockPolicy::new(locks.clone(), Key::bigint(1)).unwrap().mode(mode);
    let by_method = policy(LockMode::ByMethod);
    let readers = (
        lock(&by_method, "GET", "/").await.unwrap(),
        lock(&by_method, "HEAD", "/").await.unwrap(),
        lock(&policy(LockMode::Shared), "POST", "/").await.unwrap(),
    );
    assert_eq!(readers.2.mode(), Mode::Shared);
    assert_eq!(refusal(lock(&by_method, "POST", "/")).await, LOCK_BUSY);
    assert_eq!(refusal(lock(&policy(LockMode::Exclusive), "GET", "/")).await, LOCK_BUSY);
    drop(readers);
    let writer = lock(&by_method, "PATCH", "/").await.unwrap();
    assert_eq!(writer.mode(), Mode::Exclusive);
    assert_eq!(refusal(lock(&by_method, "GET", "/")).await, LOCK_BUSY);
}

#[tokio::test(start_paused = true)]
async fn a_policy_that_waits_is_let_in_in_time_or_refused_at_its_limit() {
    let policy = LockPolicy::new(Locks::in_memory(), segment(0)).unwrap();
    let waits = policy.clone().wait(Duration::from_secs(20));
    let first = lock(&policy, "POST", "/1").await.unwrap();
    let mut second = tokio_test::task::spawn(lock(&waits, "POST", "/1"));
    assert!(second.poll().is_pending());
    drop(first);
    drop(second.await.unwrap());

    let _first = lock(&policy, "POST", "/1").await.unwrap();
    let begun = tokio::time::Instant::now();
    assert_eq!(refusal(lock(&waits, "POST", "/1")).await, LOCK_BUSY);
    assert_eq!(begun.elapsed().as_secs(), 20);
}

#[tokio::test]
async fn preflights_pass_unless_they_are_included() {
    let mut preflight = request("OPTIONS", "/1");
    preflight
        .headers_mut()
        .insert("origin", "https://a.example".parse().unwrap());
    preflight
        .headers_mut()
        .insert("access-control-request-method", "POST".parse().unwrap());

    let policy = LockPolicy::new(Locks::in_memory(), segment(0)).unwrap();
    assert!(policy.attempt(&preflight).unwrap().is_none());
    assert!(policy.include_preflights().attempt(&preflight).unwrap().is_some());

    let policy = SlotPolicy::global(Locks::in_memory().slots("a", 1).unwrap());
    assert!(policy.attempt(&preflight).unwrap().is_none());
    assert!(policy.include_preflights().attempt(&preflight).unwrap().is_some());
}

#[tokio::test]
async fn a_dead_database_is_503_and_never_busy() {
    for error in [
        EngineErrorKind::Unavailable,
        EngineErrorKind::ConnectionLost,
        EngineErrorKind::Refused,
        EngineErrorKind::CapacityExceeded,
        EngineErrorKind::Failed,
    ] {
        let policy = LockPolicy::new(failing(error), segment(0)).unwrap();
        assert_eq!(refusal(lock(&policy, "POST", "/1")).await, UNAVAILABLE, "{error:?}");
        for capacity in [Capacity::PerClient, Capacity::Global] {
            let policy = SlotPolicy::per(failing(error), segment(0), 1)
                .unwrap()
                .capacity(capacity);
            assert_eq!(refusal(slot(&policy, "/1")).await, UNAVAILABLE, "{error:?}");
        }
    }
    let closed = Locks::in_memory();
    closed.close().await;
    let policy = LockPolicy::new(closed, segment(0))
        .unwrap()
        .wait(Duration::from_secs(9));
    assert_eq!(refusal(lock(&policy, "POST", "/1")).await, UNAVAILABLE);
}

#[tokio::test(start_paused = true)]
async fn a_database_that_does_not_answer_is_503_in_bounded_time() {
    let limit = Duration::from_secs(3);
    let begun = tokio::time::Instant::now();
    let policy = LockPolicy::new(silent(), segment(0)).unwrap().answer_within(limit);
    assert_eq!(refusal(lock(&policy, "POST", "/1")).await, UNAVAILABLE);
    assert_eq!(begun.elapsed().as_secs(), 3);
    let policy = SlotPolicy::per(silent(), segment(0), 1).unwrap().answer_within(limit);
    assert_eq!(refusal(slot(&policy, "/1")).await, UNAVAILABLE);
    assert_eq!(begun.elapsed().as_secs(), 6);
}

#[tokio::test]
async fn slots_are_per_key_or_for_all() {
    let locks = Locks::in_memory();
    let per_client = SlotPolicy::per(locks.clone(), ("client", segment(0)), 2).unwrap();
    let held = [
        slot(&per_client, "/a").await.unwrap(),
        slot(&per_client, "/a").await.unwrap(),
    ];
    assert_eq!(
        refusal(slot(&per_client, "/a")).await,
        (429, RejectionKind::SlotsFull(Capacity::PerClient))
    );
    drop(slot(&per_client, "/b").await.unwrap());
    drop(held);
    drop(slot(&per_client, "/a").await.unwrap());

    let global = SlotPolicy::global(locks.slots("ai", 1).unwrap());
    let _held = slot(&global, "/a").await.unwrap();
    assert_eq!(
        refusal(slot(&global, "/b")).await,
        (503, RejectionKind::SlotsFull(Capacity::Global))
    );
    let as_client = global.capacity(Capacity::PerClient);
    assert_eq!(refusal(slot(&as_client, "/b")).await.0, 429);
}

#[tokio::test]
async fn two_limits_for_one_key_are_a_mistake_of_the_service() {
    let locks = Locks::in_memory();
    let two = SlotPolicy::per(locks.clone(), segment(0), 2).unwrap();
    let three = SlotPolicy::per(locks, segment(0), 3).unwrap();
    let _held = slot(&two, "/a").await.unwrap();
    assert_eq!(refusal(slot(&three, "/a")).await, (500, RejectionKind::Setup));
}

#[tokio::test]
async fn unusable_names_are_the_clients_fault() {
    let policy = LockPolicy::new(Locks::in_memory(), segment(0)).unwrap();
    assert_eq!(
        refusal(lock(&policy, "POST", "/a%00b")).await,
        (400, RejectionKind::BadKey)
    );
    let policy = LockPolicy::new(Locks::in_memory(), header("x-long")).unwrap();
    let mut long = request("POST", "/");
    long.headers_mut().insert("x-long", "x".repeat(70_000).parse().unwrap());
    let rejection = policy.attempt(&long).unwrap_err();
    assert_eq!(rejection.kind(), RejectionKind::BadKey);
    assert_eq!(rejection.retry_after(), None);
}

#[tokio::test]
async fn answers_carry_the_policys_retry_after_and_can_be_replaced() {
    let policy = LockPolicy::new(Locks::in_memory(), ("order", segment(0)))
        .unwrap()
        .retry_after(Duration::from_millis(2500));
    let _held = lock(&policy, "POST", "/geheim").await.unwrap();
    let rejection = lock(&policy, "POST", "/geheim").await.unwrap_err();
    let response = policy.respond(&rejection, ResponseFormat::Problem);
    assert_eq!(response.headers()["retry-after"], "3");
    assert!(!String::from_utf8_lossy(response.body()).contains("geheim"));

    let replaced = policy.on_reject(|rejection, mut response| {
        *response.status_mut() = StatusCode::LOCKED;
        assert_eq!(rejection.kind(), RejectionKind::LockBusy);
        response.map(|_| Bytes::from_static(b"later"))
    });
    let response: Response<Bytes> = replaced.respond(&rejection, ResponseFormat::Problem);
    assert_eq!((response.status().as_u16(), &response.body()[..]), (423, &b"later"[..]));
    assert_eq!(response.headers()["retry-after"], "3");
}
