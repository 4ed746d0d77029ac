//! PgBouncer in front of the server.

use latchwork_core::AcquireError;
use latchwork_harness::{Cluster, PgBouncer, PoolMode};
use latchwork_postgres::{Config, Postgres};

use crate::onlooker::{Onlooker, SOON, assert_quiet, chain, connect, eventually, quick};

#[tokio::test(flavor = "multi_thread")]
async fn a_pooler_that_shares_sessions_is_refused_by_everything_that_holds_locks_on_one() {
    let cluster = Cluster::start().unwrap();
    for mode in [PoolMode::Transaction, PoolMode::Statement] {
        let pooler = PgBouncer::start(&cluster, mode).unwrap();
        let config: Config = pooler.url().parse().unwrap();
        let advice = [
            "connect to PostgreSQL itself or to a pool in session mode",
            "use transaction scope",
        ];
        let error = Postgres::connect(config.clone(), quick()).await.unwrap_err();
        assert!(
            advice.iter().all(|part| chain(&error).contains(part)),
            "{}",
            chain(&error)
        );

        let locks = Postgres::connect_in_background(config, quick()).locks();
        // Nothing that waits would help, so nobody waits.
        let error = locks.acquire("job").without_limit().await.unwrap_err();
        assert!(
            matches!(error, AcquireError::Refused { .. }) && !error.is_retryable(),
            "{error:?}"
        );
        assert!(
            advice.iter().all(|part| chain(&error).contains(part)),
            "{}",
            chain(&error)
        );
        let error = locks.try_acquire("job").await.unwrap_err();
        assert!(matches!(error, AcquireError::Refused { .. }), "{error:?}");
    }
    assert_eq!(Onlooker::new(&cluster.url()).await.held().await, 0);
    assert_quiet(&cluster);
}

#[tokio::test(flavor = "multi_thread")]
async fn behind_a_pooler_in_session_mode_all_is_as_without_one() {
    let cluster = Cluster::start().unwrap();
    let pooler = PgBouncer::start(&cluster, PoolMode::Session).unwrap();
    let pooled = connect(&pooler.url(), quick()).await.locks();
    let direct = connect(&cluster.url(), quick()).await.locks();
    let onlooker = Onlooker::new(&cluster.url()).await;
    for (one, other) in [(&pooled, &direct), (&direct, &pooled)] {
        let guard = one.try_acquire("job").await.unwrap().unwrap();
        assert!(other.try_acquire("job").await.unwrap().is_none());
        let waiting = tokio::spawn(other.acquire("job").within(SOON));
        onlooker.waiter().await;
        // A wait that is dropped is cancelled through the pooler too.
        let dropped = tokio::spawn(other.acquire("job").shared().within(SOON));
        waiting.abort();
        dropped.abort();
        eventually("nobody waits", async || onlooker.queued().await == 0).await;
        let waiting = tokio::spawn(other.acquire("job").within(SOON));
        onlooker.waiter().await;
        guard.release().await.unwrap();
        waiting.await.unwrap().unwrap().release().await.unwrap();
    }
    let guard = pooled.try_acquire("job").await.unwrap().unwrap();
    onlooker.terminate(onlooker.holder().await).await;
    guard.lost().await;
    guard.release().await.unwrap_err();
    pooled
        .acquire("job")
        .within(SOON)
        .await
        .unwrap()
        .release()
        .await
        .unwrap();
    eventually("nothing is held", async || onlooker.held().await == 0).await;
    pooled.close().await;
    direct.close().await;
    eventually("the pooler got its sessions back clean", async || {
        onlooker
            .is("NOT EXISTS (SELECT FROM pg_locks WHERE locktype = 'advisory')")
            .await
    })
    .await;
}
