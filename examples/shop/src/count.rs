//! How many AI calls there are at once, and the most there ever were: counted in the database, for all instances.

use crate::{error::ShopError, instance::Shop};

/// Counts a call, from before it begins. Returns its number.
pub(crate) async fn begin(shop: &Shop) -> Result<i64, ShopError> {
    let mut client = shop.pool.get().await?;
    let transaction = client.transaction().await?;
    // Two that begin at once would not see each other, so one after the other.
    transaction
        .execute("SELECT calls FROM shop.ai_most FOR UPDATE", &[])
        .await?;
    let insert = "INSERT INTO shop.ai_calls (instance) VALUES ($1) RETURNING id";
    let call = transaction.query_one(insert, &[&shop.instance]).await?;
    transaction.execute(COUNT, &[]).await?;
    transaction.commit().await?;
    Ok(call.get(0))
}

/// Counts it no more, from after it has ended.
pub(crate) async fn end(shop: &Shop, call: i64) -> Result<(), ShopError> {
    let client = shop.pool.get().await?;
    client
        .execute("DELETE FROM shop.ai_calls WHERE id = $1", &[&call])
        .await?;
    Ok(())
}

/// The calls of an instance that was killed have ended without a word, so a call counts only while its instance still
/// has the connection that had slots then. Of all that ends with an instance, it is the end of that which lets others in.
const COUNT: &str = "UPDATE shop.ai_most SET calls = greatest(calls, (
    SELECT count(*) FROM shop.ai_calls AS c WHERE EXISTS (
        SELECT FROM pg_stat_activity AS s JOIN pg_locks AS l USING (pid)
        WHERE l.locktype = 'advisory'
        AND s.application_name = 'latchwork:' || c.instance AND s.backend_start <= c.began)))";
