//! Transactions that prove the fence of a lock of session scope.

use std::time::Duration;

use diesel::PgConnection;
use latchwork_core::{Locks, fence::FencedGuard};
use latchwork_diesel::{Fence, FencedLimits, Key, LockedError, LockedTransactionExt as _, XactLockError};
use latchwork_postgres::{Config, Postgres, PostgresOptions, Timing};
use tokio::runtime::{Builder, Runtime};

use crate::support::{CLUSTER, LONG, MOMENT, becomes, connect, fresh_key, insert, is_clean, stored, table};

/// Locks of session scope, on a thread of their own as diesel blocks the test's.
struct Sessions {
    runtime: Runtime,
    locks: Locks,
}

impl Sessions {
    /// With a loss that is certain after moments.
    fn open() -> Self {
        let runtime = Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build()
            .unwrap();
        let quick = Timing::new(Duration::from_millis(250), Duration::from_millis(500));
        let config: Config = CLUSTER.url().parse().unwrap();
        let engine = Postgres::connect(config, PostgresOptions::default().with_timing(quick));
        let locks = runtime.block_on(engine).unwrap().locks();
        Self { runtime, locks }
    }

    fn acquire(&self, key: Key) -> FencedGuard {
        let acquire = async { self.locks.acquire_fenced(key).within(LONG).await };
        self.runtime.block_on(acquire).unwrap()
    }

    fn release(&self, guard: FencedGuard) {
        self.runtime.block_on(guard.release()).unwrap();
    }

    fn close(self) {
        self.runtime.block_on(self.locks.close());
    }
}

/// What the transactions of a fence's holders share, and a new grant needs.
fn transactions_key(fence: &Fence) -> Key {
    Fence::transactions_key(fence.key(), fence.mode())
}

fn refuses(conn: &mut PgConnection, fence: &Fence) {
    let never = |_: &mut PgConnection| -> diesel::QueryResult<()> { panic!("the grant is over") };
    let done = conn.fenced_transaction(fence, FencedLimits::default(), LONG, never);
    assert!(
        matches!(done, Err(LockedError::Lock(XactLockError::Superseded { key })) if key == fence.key()),
        "{done:?}"
    );
    is_clean(conn);
}

#[test]
fn a_grant_in_force_is_proved_and_one_that_is_over_is_refused_before_the_body() {
    let (mut conn, table, key, sessions) = (connect(), table(), fresh_key(), Sessions::open());
    let guard = sessions.acquire(key);
    let (fence, limits) = (guard.fence(), FencedLimits::default());
    conn.fenced_transaction(&fence, limits, LONG, |conn| {
        // The proof stays until the transaction ends.
        becomes(&CLUSTER, transactions_key(&fence), (1, 0));
        insert(conn, &table, 1)
    })
    .unwrap();
    assert_eq!(stored(&table), [0, 1]);
    is_clean(&mut conn);

    sessions.release(guard);
    refuses(&mut conn, &fence);
    let next = sessions.acquire(key);
    refuses(&mut conn, &fence);
    conn.fenced_transaction(&next.fence(), limits, LONG, |conn| insert(conn, &table, 2))
        .unwrap();
    assert_eq!(stored(&table), [0, 1, 2]);
    sessions.release(next);
    sessions.close();
}

#[test]
fn the_next_grant_waits_until_a_fenced_transaction_has_ended() {
    let (mut conn, key, sessions) = (connect(), fresh_key(), Sessions::open());
    let guard = sessions.acquire(key);
    let fence = guard.fence();
    let done = conn.fenced_transaction(&fence, FencedLimits::default(), LONG, |_| {
        sessions.release(guard);
        let locks = sessions.locks.clone();
        let acquire = async move { locks.acquire_fenced(key).within(LONG).await };
        let next = sessions.runtime.spawn(acquire);
        becomes(&CLUSTER, transactions_key(&fence), (1, 1));
        Ok::<_, diesel::result::Error>(next)
    });
    let next = sessions.runtime.block_on(done.unwrap()).unwrap().unwrap();
    sessions.release(next);
    sessions.close();
}

#[test]
fn the_server_ends_one_that_is_idle_for_too_long_and_nothing_is_stored() {
    let (mut conn, table, key, sessions) = (connect(), table(), fresh_key(), Sessions::open());
    let guard = sessions.acquire(key);
    let (fence, limits) = (guard.fence(), FencedLimits::default().with_idle(MOMENT));
    let done = conn.fenced_transaction(&fence, limits, LONG, |conn| {
        insert(conn, &table, 1)?;
        becomes(&CLUSTER, transactions_key(&fence), (0, 0));
        Ok::<_, diesel::result::Error>(())
    });
    assert!(done.is_err());
    assert_eq!(stored(&table), [0]);
    sessions.release(guard);
    sessions.close();
}
