use std::future::Future;

use bytes::Bytes;

use super::{TxError, TxRequest};

/// Opens transactions on somebody's database library, and ends them.
///
/// Every method is called from a task of its own, and its future is not dropped before it is done, except when the
/// runtime shuts down. A transaction that is dropped without [`commit`](Self::commit) or [`rollback`](Self::rollback)
/// must not find its way back to a pool: its connection is closed.
pub trait TxProvider: Clone + Send + Sync + 'static {
    /// An open transaction that owns its connection. Handlers are given it by
    /// [`LockedTx`](crate::tx::LockedTx), so it should let them neither commit nor roll back.
    type Tx: Send + 'static;

    /// Begins a transaction in READ COMMITTED and takes its lock as the first thing; `None` if others have it, or had it
    /// for as long as the request waits. In time, whatever the database does.
    ///
    /// # Errors
    ///
    /// [`TxError::Unavailable`] or [`TxError::Other`]; nothing stays open.
    fn begin(&self, request: TxRequest) -> impl Future<Output = Result<Option<Self::Tx>, TxError>> + Send;

    /// Runs one statement in a transaction and returns the first row, if there is one.
    ///
    /// Parameters have the types `text`, `bytea` and `bigint`; cast them where others are needed. The columns of the
    /// row are `text` or `bytea`, whose bytes are the same in every format of the wire.
    ///
    /// # Errors
    ///
    /// [`TxError`]; the transaction can only be rolled back then.
    fn query<'a>(
        tx: &'a mut Self::Tx,
        sql: &'a str,
        values: &'a [SqlValue<'a>],
    ) -> impl Future<Output = Result<Option<TxRow>, TxError>> + Send + 'a;

    /// Commits, and says so only if the server did.
    ///
    /// # Errors
    ///
    /// [`TxError::Aborted`] if the transaction was found aborted, or the server refused to commit it;
    /// [`TxError::OutcomeUnknown`] if the connection ended in between, or the handler has ended the transaction itself;
    /// [`TxError::Unavailable`] if the connection had ended before.
    fn commit(tx: Self::Tx) -> impl Future<Output = Result<(), TxError>> + Send;

    /// Rolls back. Whatever comes of it, nothing is stored: a connection that does not answer is closed.
    ///
    /// # Errors
    ///
    /// [`TxError`], for the log.
    fn rollback(tx: Self::Tx) -> impl Future<Output = Result<(), TxError>> + Send;
}

/// A row: the bytes of each column, `None` for NULL.
pub type TxRow = Vec<Option<Bytes>>;

/// A parameter of a statement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum SqlValue<'a> {
    /// A `text`.
    Text(&'a str),
    /// A `bytea`.
    Bytes(&'a [u8]),
    /// A `bigint`.
    Int(i64),
}
