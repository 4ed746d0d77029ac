//! Ticks that are claimed in the work's own transaction.

use std::future::Future;

use latchwork_core::once::{TickAnswer, TickClaim};

use super::{first_text, sealed::HasClient};
use crate::StatementError;

/// Claims ticks on an open transaction. Implemented for the transactions of the driver and of its pools; nobody else can.
///
/// A claim that commits with the work makes it run exactly once for each tick: a process that dies before COMMIT leaves the
/// tick to the next one. The limit: what the work does outside of its transaction may happen again.
///
/// # Examples
///
/// ```no_run
/// use std::time::Duration;
/// use latchwork_core::{Locks, once::{Schedule, TickAnswer}};
/// use latchwork_postgres::transaction::TickExt as _;
///
/// # async fn bill(locks: &Locks, client: &mut tokio_postgres::Client) -> Result<(), Box<dyn std::error::Error>> {
/// let hourly = Schedule::every(Duration::from_secs(3_600))?;
/// let claim = locks.once("bill the last hour").on(&hourly).claim()?.expect("there was a last hour");
/// let transaction = client.transaction().await?;
/// if transaction.claim_tick(&claim).await? == TickAnswer::Claimed {
///     transaction.execute("INSERT INTO bills SELECT ..", &[]).await?;
///     transaction.commit().await?;
/// }
/// # Ok(())
/// # }
/// ```
pub trait TickExt: HasClient {
    /// Claims a tick, in one round trip. It does not wait for others: [`TickAnswer::Busy`] says that another transaction has
    /// claimed a tick of this job and has not ended yet.
    ///
    /// The claim is undone with the transaction, and with a savepoint that is rolled back to.
    ///
    /// # Cancel safety
    ///
    /// Dropped midway, the transaction may have claimed the tick; it goes when the transaction is rolled back.
    ///
    /// # Errors
    ///
    /// [`StatementError`], after which the transaction is aborted. [`StatementError::TablesMissing`] says how to make the
    /// table.
    fn claim_tick(&self, claim: &TickClaim) -> impl Future<Output = Result<TickAnswer, StatementError>> + Send {
        let (client, claim) = (self.driver_client(), claim.clone());
        async move {
            let answer = client.simple_query(&claim.statement()).await;
            let messages = answer.map_err(StatementError::from_driver_of_tables)?;
            let answer = first_text(&messages).and_then(|answer| claim.read(&answer));
            answer.ok_or(StatementError::Unreadable)
        }
    }
}

impl TickExt for tokio_postgres::Transaction<'_> {}

#[cfg(feature = "deadpool")]
impl TickExt for deadpool_postgres::Transaction<'_> {}
