//! A lock in a transaction that somebody else has opened for the request.

use std::{error::Error, sync::Arc, time::Duration};

use latchwork_core::xact::{XactRequest, XactWait};
use tokio::time::{Instant, sleep};
use tracing::warn;

use super::{LockedTx, TxError, TxProvider, TxRequest, TxSlot, in_task};
use crate::{Rejection, RejectionKind};

/// Takes the lock that a request asks for in an open transaction, which keeps it to its end.
pub(super) async fn lock<P: TxProvider>(slot: &Arc<TxSlot<P::Tx>>, request: TxRequest) -> Result<(), Rejection> {
    let tx = slot
        .check_out()
        .map_err(|error| Rejection::new(RejectionKind::TransactionInUse).with_source(error))?;
    let limit = request
        .answer_within()
        .saturating_add(request.wait().unwrap_or_default());
    let (_asks, request) = request.watched();
    // The statement is not dropped midway, whoever leaves: the transaction comes back when it has an answer.
    let locks = async move { wait::<P>(tx, &request).await };
    match in_task(limit, locks, TxError::Unavailable).await {
        Ok(true) => Ok(()),
        Ok(false) => Err(Rejection::new(RejectionKind::LockBusy)),
        Err(error) => {
            let shown: &dyn Error = &error;
            warn!(target: "latchwork::http", error = shown, "a transaction could not take its lock");
            Err(Rejection::from_begin(error))
        }
    }
}

async fn wait<P: TxProvider>(mut tx: LockedTx<P::Tx>, request: &TxRequest) -> Result<bool, TxError> {
    let until = request.wait().map(|limit| Instant::now() + limit);
    loop {
        if attempt::<P>(&mut tx, request).await? {
            return Ok(true);
        }
        let left = until.map_or(Duration::ZERO, |until| until.saturating_duration_since(Instant::now()));
        if left.is_zero() || request.is_abandoned() {
            return Ok(false);
        }
        sleep(left.min(PAUSE)).await;
    }
}

/// Each statement is for one key, and has nothing to prepare.
async fn attempt<P: TxProvider>(tx: &mut P::Tx, request: &TxRequest) -> Result<bool, TxError> {
    let request = XactRequest::new(request.key()).with_mode(request.mode());
    let mut attempt = XactWait::attempt(request);
    while let Some(statement) = attempt.next().map_err(TxError::other)? {
        let row = P::query(tx, &statement.ask(), &[]).await?;
        let answer = row.as_deref().and_then(|row| row.first()?.as_deref());
        let answer = answer
            .and_then(|answer| str::from_utf8(answer).ok())
            .unwrap_or_default();
        attempt.answered(answer).map_err(TxError::other)?;
    }
    Ok(attempt.is_granted())
}

/// Between two tries. A limit inside somebody's transaction, whose settings are not ours, would cost more.
const PAUSE: Duration = Duration::from_millis(25);
