//! All of it again, through a pooler in transaction mode that keeps no prepared statements.

use super::trial::{Ground, Promise};

/// With enough connections to the server for every library's own trial, and fewer than all of them would have.
const CONNECTIONS: u32 = 12;

macro_rules! again {
    ($($subject:ident),*) => {
        $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
        async fn $subject() {
            keeps(CONNECTIONS, super::$subject::PROMISES).await;
        })*
    };
}

again!(
    bodies, cancelling, fences, isolation, limits, locks, losses, retries, savepoints
);

/// Two connections for six libraries, which share them.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pools() {
    keeps(2, super::pools::PROMISES).await;
}

async fn keeps(connections: u32, promises: &[Promise]) {
    let (ground, _pooler) = Ground::pooled(connections);
    for promise in promises {
        ground.tries(*promise).await;
    }
}
