//! What an engine at work leaves on the server: nothing in the log, a name for each session, and no more sessions than
//! it needs.

use std::time::Duration;

use latchwork_core::{Guard, Key, Locks};
use latchwork_harness::Cluster;
use latchwork_postgres::{Identity, PostgresOptions};

use crate::onlooker::{Onlooker, SOON, assert_quiet, connect, eventually, majors, quick};

/// One task of a service: everything that there is, on keys that others want too. Never drops what it waits for.
async fn mixed(locks: Locks, rounds: u32) {
    let slots = locks.slots("pool", 3).unwrap();
    let numbered = locks.slots_of_resource(7, 2).unwrap();
    for round in 0..rounds {
        let key = ["key", &fastrand::u8(0..5).to_string()];
        let limit = Duration::from_millis(fastrand::u64(0..40));
        match round % 8 {
            0 => drop(locks.try_acquire(key).await.unwrap()),
            1 => drop(locks.try_acquire(key).shared().await.unwrap()),
            2 => drop(locks.acquire(key).within(limit).await.ok()),
            3 => drop(locks.acquire(key).shared().within(limit).await.ok()),
            4 => {
                let guard = locks.acquire(key).within(SOON * 3).await.unwrap();
                tokio::time::sleep(limit / 8).await;
                guard.release().await.unwrap();
            }
            5 => drop(slots.acquire().within(SOON * 3).await.unwrap()),
            6 => drop(numbered.try_acquire().await.unwrap()),
            _ => {
                let pair = Key::pair(fastrand::i32(0..3), -1);
                if let Some(guard) = locks.try_acquire(pair).await.unwrap() {
                    guard.release().await.unwrap();
                }
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_service_at_work_writes_nothing_to_the_servers_log_and_leaves_nothing_held() {
    for installation in majors() {
        println!("PostgreSQL {}", installation.version());
        let cluster = Cluster::builder().installation(installation).start().unwrap();
        let processes = [
            connect(&cluster.url(), quick()).await,
            connect(&cluster.url(), quick()).await,
        ];
        let tasks: Vec<_> = (0..24)
            .map(|task| tokio::spawn(mixed(processes[task % 2].locks(), 80)))
            .collect();
        for task in tasks {
            task.await.unwrap();
        }
        let onlooker = Onlooker::new(&cluster.url()).await;
        eventually("nothing is held", async || {
            onlooker.held().await + onlooker.queued().await == 0
        })
        .await;
        for process in &processes {
            assert_eq!((process.locks().stats().keys, process.locks().stats().lost), (0, 0));
            process.locks().close().await;
        }
        eventually("no session is left", async || {
            onlooker.sessions("true").await.is_empty()
        })
        .await;
        assert_quiet(&cluster);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn each_session_shows_whose_it_is_and_every_start_is_another() {
    let cluster = Cluster::start().unwrap();
    let options = quick().with_application_name("billing");
    let (one, other) = (
        connect(&cluster.url(), options.clone()).await,
        connect(&cluster.url(), options).await,
    );
    let onlooker = Onlooker::new(&cluster.url()).await;
    let guard = one.locks().try_acquire("job").await.unwrap().unwrap();
    let waiting = tokio::spawn(other.locks().acquire("job").within(SOON));
    onlooker.waiter().await;
    let names = "SELECT string_agg(application_name, '|' ORDER BY application_name) FROM pg_stat_activity \
         WHERE application_name LIKE 'latchwork:%'";
    let names = onlooker.value(names).await;
    let mut shown: Vec<Identity> = names.split('|').map(|name| Identity::parse(name).unwrap()).collect();
    let (ours, theirs) = (one.identity().clone(), other.identity().clone());
    assert_ne!(ours, theirs);
    let mut expected = vec![ours, theirs.clone(), theirs];
    for identities in [&mut shown, &mut expected] {
        identities.sort_by_key(Identity::number);
    }
    assert_eq!(
        shown, expected,
        "the lock session of each, and the waiter session of one"
    );
    assert!(shown.iter().all(|identity| identity.application() == "billing"));
    guard.release().await.unwrap();
    waiting.await.unwrap().unwrap().release().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn limits_that_an_administrator_sets_for_everybody_do_not_reach_our_sessions() {
    for installation in majors() {
        println!("PostgreSQL {}", installation.version());
        let major = installation.major();
        let cluster = Cluster::builder().installation(installation).start().unwrap();
        cluster.psql("CREATE ROLE app LOGIN").unwrap();
        let mut limits = vec![
            "statement_timeout",
            "lock_timeout",
            "idle_in_transaction_session_timeout",
        ];
        limits.extend((major >= 14).then_some("idle_session_timeout"));
        limits.extend((major >= 17).then_some("transaction_timeout"));
        for limit in limits {
            cluster.psql(&format!("ALTER ROLE app SET {limit} = '50ms'")).unwrap();
        }
        // Pings are far apart, so that only a limit could end a session meanwhile.
        let url = cluster.url_for("app", "postgres");
        let (one, other) = (
            connect(&url, PostgresOptions::default()).await,
            connect(&url, PostgresOptions::default()).await,
        );
        let onlooker = Onlooker::new(&cluster.url()).await;
        let guard = one.locks().try_acquire("job").await.unwrap().unwrap();
        let waiting = tokio::spawn(other.locks().acquire("job").within(SOON));
        let waiter = onlooker.waiter().await;
        let waited =
            format!("EXISTS (SELECT FROM pg_stat_activity WHERE pid = {waiter} AND now() - query_start > '300ms')");
        eventually("it waits for longer than all limits", async || {
            onlooker.is(&waited).await
        })
        .await;
        assert_eq!(onlooker.waiter().await, waiter);
        guard.release().await.unwrap();
        let guard = waiting.await.unwrap().unwrap();
        let idle =
            format!("EXISTS (SELECT FROM pg_stat_activity WHERE pid = {waiter} AND now() - state_change > '300ms')");
        eventually("it is idle for longer than all limits", async || {
            onlooker.is(&idle).await
        })
        .await;
        assert!(guard.is_held());
        guard.release().await.unwrap();
        assert_quiet(&cluster);
    }
}

async fn take(locks: &Locks, numbers: std::ops::Range<i64>) -> Vec<Guard> {
    let mut guards = Vec::new();
    for number in numbers {
        guards.push(locks.try_acquire(Key::bigint(number)).await.unwrap().unwrap());
    }
    guards
}

#[tokio::test(flavor = "multi_thread")]
async fn above_a_number_of_locks_further_sessions_are_opened_and_closed_again_when_they_are_empty() {
    let cluster = Cluster::start().unwrap();
    let postgres = connect(&cluster.url(), quick().with_locks_per_session(100)).await;
    let onlooker = Onlooker::new(&cluster.url()).await;
    let locks = postgres.locks();
    let mut guards = take(&locks, 0..350).await;
    assert_eq!(onlooker.held().await, 350);
    let per_session =
        "SELECT max(n) FROM (SELECT count(*) AS n FROM pg_locks WHERE locktype = 'advisory' GROUP BY pid) AS t";
    assert!(
        onlooker.number(per_session).await <= 101,
        "{}",
        onlooker.value(per_session).await
    );
    let sessions = onlooker.sessions("true").await;
    assert_eq!(sessions.len(), 4);
    let homes = "SELECT string_agg(objid || '@' || pid, ',' ORDER BY objid) FROM pg_locks WHERE locktype = 'advisory'";
    let before = onlooker.value(homes).await;

    // One that is killed takes its own with it, and no other.
    let victim = sessions[3];
    let lost = onlooker
        .number(&format!(
            "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND pid = {victim}"
        ))
        .await;
    onlooker.terminate(victim).await;
    eventually("they are lost", async || locks.stats().lost == lost as u64).await;
    assert_eq!(guards.iter().filter(|guard| guard.is_held()).count() as i64, 350 - lost);
    for guard in guards.extract_if(.., |guard| !guard.is_held()) {
        guard.release().await.unwrap_err();
    }
    let after = onlooker.value(homes).await;
    let stay = before.split(',').filter(|home| !home.ends_with(&format!("@{victim}")));
    assert_eq!(
        after,
        stay.collect::<Vec<_>>().join(","),
        "keys stay where they were granted"
    );

    let again = take(&locks, 1_000..1_000 + lost).await;
    for guard in guards.into_iter().chain(again).collect::<Vec<_>>().into_iter().rev() {
        assert!(guard.is_held());
        guard.release().await.unwrap();
    }
    eventually("only the first session is left", async || {
        onlooker.sessions("true").await == [sessions[0]]
    })
    .await;
    assert_eq!(onlooker.held().await, 0);
    assert_eq!(locks.stats().keys, 0);
    // The same keys, wherever they live now.
    drop(take(&locks, 0..350).await);
    locks.close().await;
    eventually("no session is left", async || {
        onlooker.sessions("true").await.is_empty()
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn on_a_further_session_a_key_is_handed_over_waited_for_and_tried_like_any_other() {
    let cluster = Cluster::start().unwrap();
    let (one, other) = (
        connect(&cluster.url(), quick().with_locks_per_session(5)).await.locks(),
        connect(&cluster.url(), quick()).await.locks(),
    );
    let onlooker = Onlooker::new(&cluster.url()).await;
    let filled = take(&one, 0..5).await;
    let guard = one.try_acquire("job").await.unwrap().unwrap();
    assert_eq!(onlooker.sessions("true").await.len(), 3);
    for _ in 0..20 {
        assert!(other.try_acquire("job").await.unwrap().is_none());
        assert!(one.try_acquire("job").await.unwrap().is_none());
        let guard = one.try_acquire("free").await.unwrap().expect("it was released before");
        guard.release().await.unwrap();
    }
    let (here, there) = (
        tokio::spawn(one.acquire("job").within(SOON)),
        tokio::spawn(other.acquire("job").within(SOON)),
    );
    onlooker.waiter().await;
    guard.release().await.unwrap();
    let (here, there) = tokio::join!(async { here.await.unwrap().unwrap().release().await }, async {
        there.await.unwrap().unwrap().release().await
    });
    here.and(there).unwrap();
    for guard in filled {
        guard.release().await.unwrap();
    }
    eventually("nothing is held", async || onlooker.held().await == 0).await;
    assert_quiet(&cluster);
}

#[tokio::test(flavor = "multi_thread")]
async fn no_search_path_replaces_what_the_engine_asks_the_server() {
    const FUNCTIONS: [(&str, &str, &str); 11] = [
        ("pg_try_advisory_lock(bigint)", "boolean", "SELECT true"),
        ("pg_try_advisory_lock_shared(bigint)", "boolean", "SELECT true"),
        ("pg_try_advisory_lock(int, int)", "boolean", "SELECT true"),
        ("pg_advisory_xact_lock(bigint)", "void", "SELECT NULL::void"),
        ("pg_advisory_unlock(bigint)", "boolean", "SELECT false"),
        ("pg_advisory_unlock_shared(bigint)", "boolean", "SELECT false"),
        ("pg_advisory_unlock_all()", "void", "SELECT NULL::void"),
        ("pg_backend_pid()", "int", "SELECT 1"),
        ("pg_is_in_recovery()", "boolean", "SELECT true"),
        ("cardinality(bigint[])", "int", "SELECT 0"),
        ("unnest(bigint[])", "SETOF bigint", "SELECT NULL::bigint WHERE false"),
    ];
    const OPERATORS: [(&str, &str, &str); 7] = [
        ("=", "text", "boolean"),
        ("=", "name", "boolean"),
        ("=", "oid", "boolean"),
        ("=", "int", "boolean"),
        ("=", "smallint", "boolean"),
        ("<", "int", "boolean"),
        ("+", "int", "int"),
    ];
    let cluster = Cluster::start().unwrap();
    cluster
        .psql("CREATE ROLE app LOGIN; CREATE SCHEMA hostile; GRANT USAGE ON SCHEMA hostile TO app")
        .unwrap();
    for (name, returns, body) in FUNCTIONS {
        let sql = format!("CREATE FUNCTION hostile.{name} RETURNS {returns} LANGUAGE sql AS $$ {body} $$");
        cluster.psql(&sql).unwrap();
    }
    for (index, (operator, operand, result)) in OPERATORS.into_iter().enumerate() {
        let body = if result == "int" { "SELECT 1000" } else { "SELECT false" };
        let sql = format!(
            "CREATE FUNCTION hostile.f{index}({operand}, {operand}) RETURNS {result} LANGUAGE sql AS $$ {body} $$; \
             CREATE OPERATOR hostile.{operator} (LEFTARG = {operand}, RIGHTARG = {operand}, FUNCTION = hostile.f{index})"
        );
        cluster.psql(&sql).unwrap();
    }
    cluster
        .psql("CREATE VIEW hostile.pg_locks AS SELECT * FROM pg_catalog.pg_locks WHERE false; CREATE DOMAIN hostile.int8 AS int")
        .unwrap();
    cluster
        .psql("ALTER ROLE app SET search_path = hostile, pg_catalog")
        .unwrap();
    let url = cluster.url_for("app", "postgres");
    let (one, other) = (
        connect(&url, quick()).await.locks(),
        connect(&url, quick()).await.locks(),
    );
    let onlooker = Onlooker::new(&cluster.url()).await;
    for key in [Key::bigint(7), Key::pair(7, 8)] {
        let guard = one.try_acquire(key).await.unwrap().unwrap();
        assert_eq!(onlooker.held().await, 1);
        assert!(other.try_acquire(key).await.unwrap().is_none());
        let waiting = tokio::spawn(other.acquire(key).within(SOON));
        onlooker.waiter().await;
        guard.release().await.unwrap();
        waiting.await.unwrap().unwrap().release().await.unwrap();
    }
    let (mine, others) = (one.slots("pool", 2).unwrap(), other.slots("pool", 3).unwrap());
    let permits = [
        mine.try_acquire().await.unwrap().expect("the first slot"),
        mine.try_acquire().await.unwrap().expect("the second slot"),
    ];
    let third = others
        .try_acquire()
        .await
        .unwrap()
        .expect("the third slot, of those who have three");
    // The marker follows the first slot.
    eventually("three slots, and a marker of each process", async || {
        onlooker.held().await == 5
    })
    .await;
    drop((permits, third, mine, others));
    eventually("nothing is held", async || onlooker.held().await == 0).await;
    assert_quiet(&cluster);
}
