//! A lock in a transaction that somebody else has opened for the request.

use std::{error::Error, sync::Arc, time::Duration};

use latchwork_core::Mode;
use tokio::time::{Instant, sleep};
use tracing::warn;

use super::{LockedTx, SqlValue, TxError, TxProvider, TxRequest, TxSlot, in_task};
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

async fn attempt<P: TxProvider>(tx: &mut P::Tx, request: &TxRequest) -> Result<bool, TxError> {
    let (key, shared) = (request.key(), request.mode() == Mode::Shared);
    let row = match (key.as_bigint(), key.as_pair()) {
        (_, Some((high, low))) => {
            let sql = if shared { PAIR_SHARED } else { PAIR };
            P::query(tx, sql, &[SqlValue::Int(high.into()), SqlValue::Int(low.into())]).await?
        }
        (bigint, None) => {
            let sql = if shared { BIGINT_SHARED } else { BIGINT };
            P::query(tx, sql, &[SqlValue::Int(bigint.unwrap_or_default())]).await?
        }
    };
    let answer = row.as_deref().and_then(|row| row.first()?.as_deref());
    Ok(answer == Some(b"granted"))
}

macro_rules! attempt {
    ($function:literal, $arguments:literal) => {
        concat!(
            "SELECT CASE WHEN pg_catalog.",
            $function,
            "(",
            $arguments,
            ") THEN 'granted'::pg_catalog.text ELSE 'busy'::pg_catalog.text END"
        )
    };
}

const BIGINT: &str = attempt!("pg_try_advisory_xact_lock", "$1::pg_catalog.int8");
const BIGINT_SHARED: &str = attempt!("pg_try_advisory_xact_lock_shared", "$1::pg_catalog.int8");
const PAIR: &str = attempt!(
    "pg_try_advisory_xact_lock",
    "$1::pg_catalog.int8::pg_catalog.int4, $2::pg_catalog.int8::pg_catalog.int4"
);
const PAIR_SHARED: &str = attempt!(
    "pg_try_advisory_xact_lock_shared",
    "$1::pg_catalog.int8::pg_catalog.int4, $2::pg_catalog.int8::pg_catalog.int4"
);

/// Between two tries. A limit inside somebody's transaction, whose settings are not ours, would cost more.
const PAUSE: Duration = Duration::from_millis(25);
