//! What all workers share: each ships the orders of its shards.

use std::time::Duration;

use latchwork::{
    Locks,
    leader::CancellationToken,
    postgres::deadpool_postgres::Pool,
    shards::{Shard, ShardEvent},
};
use tokio::time::sleep;

/// Into how many parts the orders are cut: some times as many as there will ever be workers.
pub(crate) const SHARDS: u32 = 8;

/// Takes part in the shards, until it is told to stop.
pub(crate) async fn what_is_ours(
    locks: &Locks,
    pool: &Pool,
    name: &str,
    stop: &CancellationToken,
) -> anyhow::Result<()> {
    let shards = locks.shards("orders", SHARDS)?;
    let mut shards = shards.with_rebalance_interval(Duration::from_millis(500)).join();
    while let Some(Some(event)) = stop.run_until_cancelled(shards.next()).await {
        match event {
            ShardEvent::Gained(shard) => drop(tokio::spawn(ship(shard, pool.clone(), name.to_owned()))),
            // Its task is told by the shard itself.
            ShardEvent::Lost(index) => eprintln!("   {name} gives shard {index} up"),
            _ => {}
        }
    }
    // Waits until each task has dropped its shard.
    shards.leave().await;
    Ok(())
}

/// Ships the orders of one shard until that is to be given up, which it is when it is dropped.
async fn ship(shard: Shard, pool: Pool, name: String) {
    eprintln!("   {name} has shard {}", shard.index());
    while !shard.is_revoked() {
        match ship_next(&pool, &name, shard.index()).await {
            Ok(true) => continue,
            Ok(false) => {}
            Err(error) => eprintln!("   {name} could not ship: {error:#}"),
        }
        shard.cancellation_token().run_until_cancelled(sleep(PAUSE)).await;
    }
}

/// Ships one order, if there is one.
async fn ship_next(pool: &Pool, name: &str, shard: u32) -> anyhow::Result<bool> {
    let shipped = pool
        .get()
        .await?
        .execute(SHIP, &[&name, &i32::try_from(shard)?])
        .await?;
    Ok(shipped > 0)
}

// Nobody else looks for orders of this shard. The row is locked for the sake of what a worker that was killed may have had
// on its way: a shard goes on when its holder's connection has ended, and its statements are on others.
const SHIP: &str = "\
    UPDATE orders SET shipped_by = $1, shipped_at = clock_timestamp(), times_shipped = times_shipped + 1 \
    WHERE id = (\
        SELECT id FROM orders WHERE shard = $2 AND term IS NOT NULL AND shipped_by IS NULL \
        ORDER BY id LIMIT 1 FOR UPDATE\
    )";
const PAUSE: Duration = Duration::from_millis(50);
