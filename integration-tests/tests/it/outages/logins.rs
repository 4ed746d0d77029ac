//! Servers that are not there, or let nobody in.

use std::process::Command;
use std::time::Duration;

use latchwork_core::{Key, Locks};
use latchwork_harness::{Cluster, Process, StopMode};
use latchwork_postgres::{Config, Postgres};

use crate::onlooker::{Onlooker, SOON, chain, connect, eventually, quick, within};

fn background(url: &str) -> Postgres {
    Postgres::connect_in_background(url.parse::<Config>().unwrap(), quick())
}

/// Everything that is asked for fails as an outage whose text has `advice` in it, and says no password.
async fn assert_outage(locks: &Locks, advice: &str) {
    let slots = locks.slots("pool", 2).unwrap();
    let errors = [
        locks.try_acquire("job").await.map(drop).unwrap_err(),
        locks.acquire("job").within(Duration::ZERO).await.map(drop).unwrap_err(),
        locks
            .acquire("job")
            .within(Duration::from_millis(50))
            .await
            .map(drop)
            .unwrap_err(),
        locks
            .acquire("job")
            .shared()
            .within(Duration::from_millis(50))
            .await
            .map(drop)
            .unwrap_err(),
        slots.try_acquire().await.map(drop).unwrap_err(),
        slots
            .acquire()
            .within(Duration::from_millis(50))
            .await
            .map(drop)
            .unwrap_err(),
    ];
    for error in errors {
        assert!(error.is_outage() && !error.is_timeout(), "{error:?}");
        let text = chain(&error);
        assert!(text.contains(advice), "no {advice:?} in {text}");
        assert!(!text.contains("s3cret"), "{text}");
    }
    // At the latest with the next attempt to connect.
    within(SOON, "what nobody waits for any more is forgotten", async || {
        locks.stats().keys == 0
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_asked_for_before_the_server_is_up_waits_for_it_within_its_limit() {
    let cluster = Cluster::start().unwrap();
    cluster.stop(StopMode::Fast).unwrap();
    Postgres::connect(cluster.url().parse::<Config>().unwrap(), quick())
        .await
        .unwrap_err();
    let locks = background(&cluster.url()).locks();
    assert_outage(&locks, "no PostgreSQL server answers at").await;
    let patient = tokio::spawn(locks.acquire("job").within(SOON * 2));
    let more_patient = tokio::spawn(locks.acquire("other").without_limit());
    let slots = locks.slots("pool", 2).unwrap();
    let permit = tokio::spawn(slots.acquire().within(SOON * 2));
    cluster.restart(StopMode::Fast).unwrap();
    patient.await.unwrap().unwrap().release().await.unwrap();
    more_patient.await.unwrap().unwrap().release().await.unwrap();
    permit.await.unwrap().unwrap().release().await.unwrap();
    assert!(locks.try_acquire("job").await.unwrap().is_some());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_wrong_password_is_waited_out_by_those_who_are_patient_and_shown_nowhere() {
    let hba = "local all postgres trust\nlocal all all scram-sha-256\n";
    let cluster = Cluster::builder().hba(hba).start().unwrap();
    cluster.psql("CREATE ROLE app LOGIN PASSWORD 'right'").unwrap();
    let url = format!("host={} user=app dbname=postgres password=s3cret", cluster.host());
    let error = Postgres::connect(url.parse::<Config>().unwrap(), quick())
        .await
        .unwrap_err();
    assert!(chain(&error).contains("check the user name, the password"), "{error:?}");
    assert!(!chain(&error).contains("s3cret"), "{error:?}");

    let postgres = background(&url);
    let locks = postgres.locks();
    assert_outage(&locks, "check the user name, the password").await;
    let patient = tokio::spawn(locks.acquire("job").without_limit());
    let shown = format!(
        "{postgres:?} {locks:?} {:?} {:?}",
        locks.acquire("job"),
        postgres.identity()
    );
    assert!(!shown.contains("s3cret"), "{shown}");

    cluster.psql("ALTER ROLE app PASSWORD 's3cret'").unwrap();
    let guard = patient.await.unwrap().unwrap();
    let shown = format!("{postgres:?} {locks:?} {guard:?} {:?}", postgres.server());
    assert!(!shown.contains("s3cret"), "{shown}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_missing_database_is_told_until_it_is_made() {
    let cluster = Cluster::start().unwrap();
    let locks = background(&cluster.url_for("postgres", "shop")).locks();
    assert_outage(&locks, "no such database; create it").await;
    cluster.psql("CREATE DATABASE shop").unwrap();
    eventually("it is there", async || {
        locks.try_acquire("job").await.is_ok_and(|guard| guard.is_some())
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn without_a_connection_for_it_a_wait_polls_and_queues_again_once_there_is_one() {
    let cluster = Cluster::start().unwrap();
    cluster.psql("CREATE ROLE app LOGIN CONNECTION LIMIT 2").unwrap();
    let url = cluster.url_for("app", "postgres");
    let locks = connect(&url, quick()).await.locks();
    let onlooker = Onlooker::new(&cluster.url()).await;
    let crowd = Onlooker::new(&url).await;
    onlooker.value("SELECT pg_advisory_lock(7)").await;
    let waiting = tokio::spawn(locks.acquire(Key::bigint(7)).within(SOON));
    eventually("it was refused", async || {
        cluster.log().contains("too many connections")
    })
    .await;
    assert_eq!(onlooker.queued().await, 0);
    assert!(
        locks.try_acquire("another").await.unwrap().is_some(),
        "that is no outage"
    );
    onlooker.value("SELECT pg_advisory_unlock(7)").await;
    waiting.await.unwrap().unwrap().release().await.unwrap();
    drop(crowd);
    onlooker.value("SELECT pg_advisory_lock(7)").await;
    let waiting = tokio::spawn(locks.acquire(Key::bigint(7)).within(SOON));
    onlooker.waiter().await;
    onlooker.value("SELECT pg_advisory_unlock(7)").await;
    waiting.await.unwrap().unwrap().release().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn without_a_connection_for_a_further_session_the_first_one_takes_the_locks() {
    let cluster = Cluster::start().unwrap();
    cluster.psql("CREATE ROLE app LOGIN CONNECTION LIMIT 2").unwrap();
    let url = cluster.url_for("app", "postgres");
    let locks = connect(&url, quick().with_locks_per_session(10)).await.locks();
    let onlooker = Onlooker::new(&cluster.url()).await;
    let crowd = Onlooker::new(&url).await;
    let mut guards = Vec::new();
    for number in 0..50 {
        let guard = locks.try_acquire(["row", &number.to_string()]).await;
        guards.push(guard.expect("that is no outage").expect("and nobody holds it"));
    }
    assert_eq!(onlooker.held().await, 50);
    assert!(guards.iter().all(latchwork_core::Guard::is_held));
    for guard in guards {
        guard.release().await.unwrap();
    }
    eventually("nothing is held", async || onlooker.held().await == 0).await;
    drop(crowd);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_url_that_does_not_parse_is_refused_with_what_to_do_and_without_its_password() {
    for (url, advice) in [
        ("postgres//app:s3cret@db/shop", "postgres://"),
        ("postgres://app:s3cret@db:port/shop", "port"),
        ("postgres://app:s3cret@db/shop?sslmode=maybe", "sslmode"),
        ("postgres://app:s3cret@db/shop?pool=5", "pool"),
        ("host=db password=s3cret user", "single quotes"),
    ] {
        let mut command = Command::new(env!("CARGO_BIN_EXE_holder"));
        let mut process = Process::spawn(command.env("DATABASE_URL", url)).unwrap();
        let refusal = process.wait_for_line("refused ").unwrap();
        assert!(refusal.contains(advice), "{url}: {refusal}");
        assert!(!refusal.contains("s3cret"), "{url}: {refusal}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_hangs_up_is_asked_again_later_and_later() {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let postgres = background(&format!("postgres://app@{address}/shop?sslmode=disable"));
    let locks = postgres.locks();
    // One who waits all the time does not make it ask more often.
    let waiting = tokio::spawn(locks.acquire("job").without_limit());
    let begun = std::time::Instant::now();
    let mut asked = Vec::new();
    while let Ok(accepted) = tokio::time::timeout(
        Duration::from_secs(4).saturating_sub(begun.elapsed()),
        listener.accept(),
    )
    .await
    {
        drop(accepted.unwrap());
        asked.push(begun.elapsed());
    }
    assert!((3..=12).contains(&asked.len()), "{asked:?}");
    let pauses: Vec<_> = asked.windows(2).map(|pair| pair[1] - pair[0]).collect();
    assert!(*pauses.last().unwrap() > pauses[0] * 2, "{pauses:?}");
    assert!(!waiting.is_finished(), "it is waited for");
    waiting.abort();
}
