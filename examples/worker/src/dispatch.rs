//! What only the leader does: it dispatches orders, some at a time.

use std::time::Duration;

use latchwork::{
    Locks,
    leader::{CancellationToken, Leading},
    postgres::{deadpool_postgres::Pool, transaction::LockedTransactionExt as _},
    xact::FencedLimits,
};
use tokio::time::sleep;

/// Campaigns, and dispatches while this worker leads, until it is told to stop.
pub(crate) async fn while_leading(
    locks: &Locks,
    pool: &Pool,
    name: &str,
    stop: &CancellationToken,
) -> anyhow::Result<()> {
    let candidate = locks.leader("dispatcher").campaign()?;
    // Again each time that this worker is elected; at the end the work is cancelled, waited for, and the lock given up.
    candidate
        .run_until(stop.cancelled(), |leading, cancel| {
            dispatch(leading, cancel, pool, name)
        })
        .await;
    Ok(())
}

async fn dispatch(leading: Leading, cancel: CancellationToken, pool: &Pool, name: &str) {
    let term = leading.term().to_string();
    eprintln!("   {name} leads, in term {term}");
    // While the database does not answer, it is not known whether this worker leads; it pauses.
    while !cancel.is_cancelled() && leading.confirmed().await.is_ok() {
        // It commits before the next leader begins, or not at all, whatever this one believes.
        let dispatched = pool
            .fenced_transaction(&leading.fence(), FencedLimits::default(), LIMIT, async |tx| {
                tx.execute(DISPATCH, &[&name, &term, &AT_A_TIME]).await
            })
            .await;
        if let Err(error) = dispatched {
            eprintln!("   {name} could not dispatch: {:#}", anyhow::Error::new(error));
        }
        cancel.run_until_cancelled(sleep(PAUSE)).await;
    }
    eprintln!("   {name} leads no more");
}

const DISPATCH: &str = "\
    UPDATE orders SET dispatched_by = $1, term = $2 \
    WHERE id IN (SELECT id FROM orders WHERE term IS NULL ORDER BY id LIMIT $3)";
const AT_A_TIME: i64 = 5;
const PAUSE: Duration = Duration::from_millis(100);
const LIMIT: Duration = Duration::from_secs(5);
