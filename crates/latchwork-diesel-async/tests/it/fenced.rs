//! Transactions that prove a fence.

use std::time::Duration;

use diesel::QueryResult;
use diesel_async::AsyncPgConnection;
use latchwork_core::Mode;
use latchwork_diesel_async::{Fence, FencedLimits, LockedError, LockedTransactionExt, XactLockError};

use crate::support::{
    Bb8, CLUSTER, Deadpool, Drops, LONG, MOMENT, TestPool, answers, becomes, connection, count, count_one, counter,
    dropped, end, fresh_key, holder, is_clean, is_free, left, pool, run, seen, value,
};

/// A session that has what a holder of a fenced lock has, until it is dropped.
async fn grant(fence: &Fence) -> AsyncPgConnection {
    let mut session = connection().await;
    let shared = if fence.mode() == Mode::Shared { "_shared" } else { "" };
    let take = format!(
        "SELECT pg_advisory_lock{shared}({}); SELECT pg_advisory_lock({})",
        fence.key().sql_arguments(),
        fence.grant_key().sql_arguments()
    );
    run(&mut session, take).await.unwrap();
    session
}

fn limits() -> FencedLimits {
    FencedLimits::default()
}

async fn commits_only_under_its_grant<P: TestPool>()
where
    for<'p> &'p P: LockedTransactionExt,
{
    let (pool, table) = (P::of(&CLUSTER.url(), 1), counter());
    for mode in [Mode::Exclusive, Mode::Shared] {
        let fence = Fence::fresh(fresh_key(), mode);
        let transactions = Fence::transactions_key(fence.key(), mode);
        let session = grant(&fence).await;
        let before: usize = count(&table).parse().unwrap();
        let work = (&pool).fenced_transaction(&fence, limits(), LONG, async |tx| {
            // A later grant waits for this key.
            assert_eq!(seen(transactions), (1, 0));
            assert!(!is_free(transactions));
            count_one(tx, &table).await
        });
        work.await.unwrap();
        assert!(is_free(transactions));
        run(&mut { session }, "SELECT pg_advisory_unlock_all()".to_owned())
            .await
            .unwrap();
        let body = async |_: &mut AsyncPgConnection| -> QueryResult<()> { panic!("it runs") };
        let late = (&pool).fenced_transaction(&fence, limits(), LONG, body).await;
        assert!(
            matches!(late, Err(LockedError::Lock(XactLockError::Superseded { key })) if key == fence.key()),
            "{late:?}"
        );
        assert_eq!(count(&table), (before + 1).to_string());
        assert!(is_free(transactions));
        is_clean(&pool).await;
    }
}

#[tokio::test]
async fn it_commits_only_while_its_grant_is_in_force() {
    commits_only_under_its_grant::<Deadpool>().await;
    commits_only_under_its_grant::<Bb8>().await;
}

#[tokio::test]
async fn a_grant_that_is_being_made_is_waited_for_within_the_limit() {
    let pool = pool(&CLUSTER.url(), 1);
    let fence = Fence::fresh(fresh_key(), Mode::Exclusive);
    let _session = grant(&fence).await;
    let transactions = Fence::transactions_key(fence.key(), Mode::Exclusive);
    // It drains what an earlier holder runs.
    let drains = holder(transactions).await;
    let late = pool
        .fenced_transaction(&fence, limits(), MOMENT, async |_| QueryResult::Ok(()))
        .await;
    assert!(late.unwrap_err().is_timeout());
    is_clean(&pool).await;
    let work = pool.fenced_transaction(&fence, limits(), LONG, async |_| QueryResult::Ok(seen(transactions)));
    let (held, ()) = tokio::join!(work, async {
        becomes(transactions, (1, 1)).await;
        end(drains).await;
    });
    assert_eq!(held.unwrap(), (1, 0));
}

#[tokio::test]
async fn one_that_is_paused_is_ended_and_not_reported_as_committed() {
    let (mut one, table) = (connection().await, counter());
    let fence = Fence::fresh(fresh_key(), Mode::Exclusive);
    let _session = grant(&fence).await;
    let transactions = Fence::transactions_key(fence.key(), Mode::Exclusive);
    let brief = limits().with_idle(Duration::from_millis(200));
    let paused = one.fenced_transaction(&fence, brief, LONG, async |tx| {
        count_one(tx, &table).await?;
        becomes(transactions, (0, 0)).await;
        QueryResult::Ok(())
    });
    let paused = paused.await;
    assert!(matches!(paused, Err(LockedError::OutcomeUnknown(_))), "{paused:?}");
    assert_eq!(count(&table), "0");
}

/// The limits are the transaction's own.
#[tokio::test]
async fn the_sessions_limits_are_as_before_afterwards() {
    let mut one = connection().await;
    let fence = Fence::fresh(fresh_key(), Mode::Exclusive);
    let _session = grant(&fence).await;
    let idle = "SELECT setting::int4 FROM pg_settings WHERE name = 'idle_in_transaction_session_timeout'";
    let within = one
        .fenced_transaction(&fence, limits(), LONG, async |tx| value(tx, idle).await)
        .await;
    assert_eq!(within.unwrap(), 15_000);
    assert_eq!(value(&mut one, idle).await.unwrap(), 0);
    assert_eq!(left(&mut one).await, 0);
}

#[tokio::test]
async fn nothing_is_left_wherever_it_is_dropped() {
    let pool = pool(&CLUSTER.url(), 1);
    drop(pool.connection().await);
    let fence = Fence::fresh(fresh_key(), Mode::Exclusive);
    let _session = grant(&fence).await;
    let transactions = Fence::transactions_key(fence.key(), Mode::Exclusive);
    let mut done = None;
    for polls in 0..100 {
        let work = pool.fenced_transaction(&fence, limits(), LONG, async |_| QueryResult::Ok(()));
        done = dropped(polls, Drops::WhenWoken, work).await;
        becomes(transactions, (0, 0)).await;
        is_clean(&pool).await;
        if done.is_some() {
            break;
        }
    }
    done.expect("it takes more polls than that").unwrap();
    let open = "SELECT count(*) FROM pg_stat_activity WHERE state LIKE 'idle in transaction%' AND query LIKE '%fence%'";
    answers(open.to_owned(), "0").await;
}
