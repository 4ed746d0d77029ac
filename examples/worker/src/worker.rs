//! One worker: what it connects, what it does at once, and how it ends.

use latchwork::{
    Config, Postgres, PostgresOptions,
    leader::CancellationToken,
    postgres::{
        deadpool_postgres::{Manager, ManagerConfig, Pool},
        transaction::OnRuntime,
    },
};
use tokio::signal::unix::{SignalKind, signal};

use crate::{dispatch, report, ship};

#[tokio::main]
pub(crate) async fn work(name: &str, url: &str) -> anyhow::Result<()> {
    let stop = stop_on_signal()?;
    let config: Config = url.parse()?;
    let pool = pool(&config)?;
    let options = PostgresOptions::default().with_application_name(name);
    let postgres = Postgres::connect(config, options).await?;
    // Ticks need a table.
    postgres.install_schema().await?;
    let locks = postgres.locks();

    let ended = tokio::try_join!(
        dispatch::while_leading(&locks, &pool, name, &stop),
        ship::what_is_ours(&locks, &pool, name, &stop),
        report::each_second(&locks, &pool, name, &stop),
    );
    // What is still held is given up before the process ends.
    locks.close().await;
    ended?;
    eprintln!("   {name} has ended in order");
    Ok(())
}

/// A token that is cancelled by SIGTERM, or Ctrl-C.
fn stop_on_signal() -> anyhow::Result<CancellationToken> {
    let stop = CancellationToken::new();
    let (mut terminate, mut interrupt) = (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?);
    let stops = stop.clone();
    tokio::spawn(async move {
        tokio::select! {
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
        }
        stops.cancel();
    });
    Ok(stop)
}

/// For the work's own statements: locks are on connections of their own.
fn pool(config: &Config) -> anyhow::Result<Pool> {
    let connect = OnRuntime::current(config.tls_connector()?);
    let manager = Manager::from_connect(config.to_tokio_postgres(), connect, ManagerConfig::default());
    Ok(Pool::builder(manager).max_size(8).build()?)
}
