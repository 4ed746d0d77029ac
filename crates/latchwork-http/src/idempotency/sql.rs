//! The statements over `latchwork.idempotency`.

use std::time::Duration;

use bytes::Bytes;
use http::StatusCode;

use super::{
    digest::{Fingerprint, RecordId},
    record::StoredResponse,
};
use crate::tx::{SqlValue, TxError, TxProvider, TxRow};

const FIND: &str = "SELECT fingerprint, state, status::pg_catalog.text, headers, body FROM latchwork.idempotency \
     WHERE id OPERATOR(pg_catalog.=) $1 AND expires_at OPERATOR(pg_catalog.>) pg_catalog.statement_timestamp()";

/// A record that has expired is there until somebody sweeps.
const STORE: &str = "INSERT INTO latchwork.idempotency (id, fingerprint, state, status, headers, body, expires_at) \
     VALUES ($1, $2, $3, CASE WHEN $4 OPERATOR(pg_catalog.>) 0::pg_catalog.int8 THEN $4::pg_catalog.int2 END, $5, \
     CASE WHEN $3 OPERATOR(pg_catalog.=) 'done'::pg_catalog.text THEN $6 END, \
     pg_catalog.statement_timestamp() OPERATOR(pg_catalog.+) \
     pg_catalog.make_interval(secs => $7::pg_catalog.float8)) \
     ON CONFLICT (id) DO UPDATE SET fingerprint = excluded.fingerprint, state = excluded.state, \
     status = excluded.status, headers = excluded.headers, body = excluded.body, expires_at = excluded.expires_at";

const FORGET: &str = "DELETE FROM latchwork.idempotency WHERE id OPERATOR(pg_catalog.=) $1";

/// A piece, so that nobody waits for long, and past rows that others work on. Says whether there may be more.
const SWEEP: &str = "WITH gone AS (DELETE FROM latchwork.idempotency WHERE id OPERATOR(pg_catalog.=) ANY (ARRAY(\
     SELECT id FROM latchwork.idempotency \
     WHERE expires_at OPERATOR(pg_catalog.<=) pg_catalog.statement_timestamp() \
     ORDER BY expires_at LIMIT 1000 FOR UPDATE SKIP LOCKED)) RETURNING 1) \
     SELECT CASE WHEN pg_catalog.count(*) OPERATOR(pg_catalog.=) 1000::pg_catalog.int8 \
     THEN 'more'::pg_catalog.text ELSE 'done'::pg_catalog.text END FROM gone";

/// What is known of a request.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Found {
    Nothing,
    Mismatch,
    Response(StoredResponse),
    /// It was carried out, and its response was not kept.
    Tombstone,
    /// It was begun outside of a transaction, and nobody has said how it ended.
    Begun,
}

/// What is kept of a request.
#[derive(Clone, Debug)]
pub(super) enum Kept {
    Response(StoredResponse),
    Tombstone(StatusCode),
    Begun,
    /// Not even that it was begun.
    Nothing,
}

pub(super) async fn find<P: TxProvider>(
    tx: &mut P::Tx,
    id: &RecordId,
    fingerprint: &Fingerprint,
) -> Result<Found, TxError> {
    let row = P::query(tx, FIND, &[SqlValue::Bytes(id.as_bytes())]).await?;
    row.map_or(Ok(Found::Nothing), |row| read(row, fingerprint))
}

fn read(row: TxRow, fingerprint: &Fingerprint) -> Result<Found, TxError> {
    let [first, state, status, headers, body]: [Option<Bytes>; 5] = row.try_into().map_err(|_| unreadable())?;
    if first.ok_or_else(unreadable)? != fingerprint.as_bytes() {
        return Ok(Found::Mismatch);
    }
    match (state.as_deref(), status, body) {
        (Some(b"done"), Some(status), Some(body)) => Ok(Found::Response(StoredResponse {
            status: StatusCode::from_bytes(&status).map_err(|_| unreadable())?,
            headers: headers.unwrap_or_default(),
            body,
        })),
        (Some(b"tombstone"), ..) => Ok(Found::Tombstone),
        (Some(b"begun"), ..) => Ok(Found::Begun),
        _ => Err(unreadable()),
    }
}

fn unreadable() -> TxError {
    TxError::other("a record of latchwork.idempotency is not as this version writes them")
}

pub(super) async fn store<P: TxProvider>(
    tx: &mut P::Tx,
    id: &RecordId,
    fingerprint: &Fingerprint,
    kept: &Kept,
    retention: Duration,
) -> Result<(), TxError> {
    let retention = retention.as_secs_f64().to_string();
    let (state, status, headers, body): (_, _, &[u8], &[u8]) = match kept {
        Kept::Response(response) => ("done", Some(response.status), &response.headers, &response.body),
        Kept::Tombstone(status) => ("tombstone", Some(*status), &[], &[]),
        Kept::Begun => ("begun", None, &[], &[]),
        Kept::Nothing => return P::query(tx, FORGET, &[SqlValue::Bytes(id.as_bytes())]).await.map(drop),
    };
    let values = [
        SqlValue::Bytes(id.as_bytes()),
        SqlValue::Bytes(fingerprint.as_bytes()),
        SqlValue::Text(state),
        SqlValue::Int(status.map_or(0, |status| i64::from(status.as_u16()))),
        SqlValue::Bytes(headers),
        SqlValue::Bytes(body),
        SqlValue::Text(&retention),
    ];
    P::query(tx, STORE, &values).await.map(drop)
}

/// Deletes a piece of what has expired; whether there may be more.
pub(super) async fn sweep<P: TxProvider>(tx: &mut P::Tx) -> Result<bool, TxError> {
    let row = P::query(tx, SWEEP, &[]).await?;
    let answer = row.as_deref().and_then(|row| row.first()?.as_deref());
    Ok(answer == Some(b"more"))
}
