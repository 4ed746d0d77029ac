//! Poolers between us and the server.

use std::future::Future;
use std::task::Poll;

use latchwork_harness::{Cluster, PgBouncer, PoolMode};
use latchwork_postgres::checks::{self, CheckError};
use latchwork_postgres::config::Config;
use latchwork_postgres::connect::{SessionSettings, connect};
use tokio_postgres::SimpleQueryMessage;
use tokio_postgres::error::SqlState;

use super::{CLUSTER, assert_quiet, falls_asleep, refused, try_connect, value};

#[tokio::test]
async fn a_pooler_in_session_mode_is_accepted_and_the_session_is_set_up() {
    let cluster = Cluster::builder().setting("statement_timeout", "1h").start().unwrap();
    let pooler = PgBouncer::start(&cluster, PoolMode::Session).unwrap();
    let mut connected = try_connect(&pooler.url()).await.unwrap();
    assert!(connected.facts.pooled);
    assert_eq!(value(&mut connected, "SHOW statement_timeout").await, "0");
    let known = connected.facts.clone();
    let config: Config = pooler.url().parse().unwrap();
    let second = connect(&config, &SessionSettings::default(), Some(&known))
        .await
        .unwrap();
    assert!(second.facts.pooled);
}

#[tokio::test]
async fn a_cancel_request_does_not_end_the_pooler() {
    let pooler = PgBouncer::start(&CLUSTER, PoolMode::Session).unwrap();
    let mut connected = try_connect(&pooler.url()).await.unwrap();
    for round in 0..20 {
        let canceller = connected.canceller.clone();
        let pid = connected.facts.backend_pid;
        let sleeping = connected.client.simple_query("SELECT pg_sleep(30)");
        let (slept, sent) = tokio::join!(connected.wire.drive(sleeping), async {
            falls_asleep(pid).await;
            canceller.cancel().await
        });
        assert_eq!(
            slept.unwrap_err().code(),
            Some(&SqlState::QUERY_CANCELED),
            "{round}: {}",
            pooler.log()
        );
        sent.unwrap();
    }
    for _ in 0..10 {
        let mut other = try_connect(&pooler.url()).await.unwrap();
        let (canceller, pid) = (other.canceller.clone(), other.facts.backend_pid);
        let sleeping = other.client.simple_query("SELECT pg_sleep(30)");
        let (slept, ()) = tokio::join!(other.wire.drive(sleeping), async {
            falls_asleep(pid).await;
            let mut cancelling = Box::pin(canceller.cancel());
            let begun = std::future::poll_fn(|cx| Poll::Ready(cancelling.as_mut().poll(cx).is_pending())).await;
            assert!(begun);
        });
        assert_eq!(
            slept.unwrap_err().code(),
            Some(&SqlState::QUERY_CANCELED),
            "{}",
            pooler.log()
        );
    }
    assert!(!pooler.log().contains("FATAL"), "{}", pooler.log());
    assert_eq!(value(&mut connected, "SELECT 1").await, "1");
}

#[tokio::test]
async fn a_pooler_that_shares_sessions_is_refused_and_its_sessions_are_left_as_they_were() {
    let cluster = Cluster::builder().setting("statement_timeout", "1h").start().unwrap();
    for (mode, found) in [
        (PoolMode::Transaction, checks::PoolMode::Transaction),
        (PoolMode::Statement, checks::PoolMode::Transaction),
    ] {
        let pooler = PgBouncer::start(&cluster, mode).unwrap();
        for _ in 0..5 {
            let refusal = refused(&pooler.url()).await;
            assert_eq!(refusal, CheckError::SharedSessions { mode: found });
            assert!(refusal.to_string().contains("transaction scope"), "{refusal}");
        }
        let (client, connection) = tokio_postgres::connect(&pooler.url(), tokio_postgres::NoTls)
            .await
            .unwrap();
        tokio::spawn(connection);
        let shown = client.simple_query("SHOW statement_timeout").await.unwrap();
        assert!(
            shown
                .iter()
                .any(|m| matches!(m, SimpleQueryMessage::Row(row) if row.get(0) == Some("1h")))
        );
    }
    assert_eq!(
        cluster
            .psql("SELECT count(*) FROM pg_locks WHERE locktype = 'advisory'")
            .unwrap(),
        "0"
    );
    assert_quiet(&cluster);
}

#[tokio::test]
async fn a_busy_pool_in_transaction_mode_is_found_out_too() {
    let cluster = Cluster::start().unwrap();
    let pooler = PgBouncer::start(&cluster, PoolMode::Transaction).unwrap();
    let mut clients = Vec::new();
    for _ in 0..8 {
        let (client, connection) = tokio_postgres::connect(&pooler.url(), tokio_postgres::NoTls)
            .await
            .unwrap();
        tokio::spawn(connection);
        clients.push(tokio::spawn(async move {
            loop {
                client.simple_query("SELECT pg_sleep(random() * 0.003)").await.unwrap();
            }
        }));
    }
    for round in 0..20 {
        let refusal = refused(&pooler.url()).await;
        assert_eq!(
            refusal,
            CheckError::SharedSessions {
                mode: checks::PoolMode::Transaction
            },
            "{round}"
        );
    }
    for client in clients {
        client.abort();
    }
}

#[tokio::test]
async fn a_full_pool_in_session_mode_is_an_error_that_says_so() {
    let pooler = PgBouncer::builder(&CLUSTER, PoolMode::Session)
        .setting("default_pool_size", 1)
        .start()
        .unwrap();
    let refusal = refused(&format!("{}?connect_timeout=2", pooler.url())).await;
    assert_eq!(refusal, CheckError::UnknownPooler);
    assert!(!refusal.is_permanent());
}
