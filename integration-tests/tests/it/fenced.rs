//! Fenced locks: what a grant waits for, and what no transaction of a superseded grant can do.

mod grants;
mod stopped;
mod stress;
mod transactions;

use std::time::Duration;

use latchwork_core::{
    Key, Locks,
    fence::{Fence, FencedGuard},
    xact::{FencedLimits, XactLockError},
};
use latchwork_postgres::transaction::XactLockExt as _;
use tokio_postgres::{Client, NoTls, Transaction};

use crate::onlooker::SOON;

async fn client(url: &str) -> Client {
    let (client, connection) = tokio_postgres::connect(url, NoTls).await.unwrap();
    tokio::spawn(connection);
    client
}

async fn fenced(locks: &Locks, key: Key) -> FencedGuard {
    locks.acquire_fenced(key).within(SOON).await.unwrap()
}

/// Begins a transaction that has proved a fence.
async fn proved<'a>(client: &'a mut Client, fence: &Fence) -> Result<Transaction<'a>, XactLockError> {
    let transaction = client.transaction().await.unwrap();
    let limits = FencedLimits::default();
    transaction.prove_fence(fence, limits).within(SOON).await?;
    Ok(transaction)
}

/// Long enough to be seen, and short enough to be waited for.
const MOMENT: Duration = Duration::from_millis(50);
