//! Statements of the layers.

use diesel::{
    QueryResult,
    deserialize::{self, QueryableByName},
    pg::Pg,
    query_builder::{AstPass, Query, QueryFragment, QueryId},
    result::{DatabaseErrorKind, Error},
    row::{Field as _, NamedRow, Row},
    sql_types::{BigInt, Binary, Text, Untyped},
};
use diesel_async::{AsyncPgConnection, RunQueryDsl as _};
use latchwork_http::{
    bytes::Bytes,
    tx::{SqlValue, TxError, TxRow},
};

use crate::{
    error::{is_lost, message},
    wait::batch,
};

/// Runs one statement and returns the first row, if there is one.
pub(super) async fn first_row(
    connection: &mut AsyncPgConnection,
    sql: &str,
    values: &[SqlValue<'_>],
) -> Result<Option<TxRow>, TxError> {
    let rows: QueryResult<Vec<Columns>> = Statement { sql, values }.load(connection).await;
    match rows {
        Ok(rows) => Ok(rows.into_iter().next().map(|Columns(columns)| columns)),
        Err(error) => Err(from_statement(connection, error).await),
    }
}

/// What an error means, which has no SQLSTATE: the next statement shows what became of the transaction and the connection.
async fn from_statement(connection: &AsyncPgConnection, error: Error) -> TxError {
    if is_lost(&error) {
        return TxError::unavailable(error);
    }
    let Error::DatabaseError(kind, information) = &error else {
        return TxError::other(error);
    };
    match batch(connection, "SELECT 1").await {
        Err(next) if is_lost(&next) => TxError::unavailable(error),
        // In a transaction that was aborted before, every statement fails with the same words.
        Err(next) if message(&next) == message(&error) => TxError::aborted(error),
        // The layers' statements are well formed; so one that is refused where it stands names what is not there.
        _ if is_unsorted(kind) && information.statement_position().is_some() => TxError::setup(error),
        _ if is_unsorted(kind) && information.message().starts_with("permission denied") => TxError::setup(error),
        _ => TxError::other(error),
    }
}

const fn is_unsorted(kind: &DatabaseErrorKind) -> bool {
    matches!(kind, DatabaseErrorKind::Unknown)
}

/// A statement that is known only now. It is not kept prepared on the connection: many have a key in their text.
struct Statement<'a> {
    sql: &'a str,
    values: &'a [SqlValue<'a>],
}

impl QueryFragment<Pg> for Statement<'_> {
    fn walk_ast<'b>(&'b self, mut out: AstPass<'_, 'b, Pg>) -> QueryResult<()> {
        out.unsafe_to_cache_prepared();
        out.push_sql(self.sql);
        for value in self.values {
            match value {
                SqlValue::Text(text) => out.push_bind_param_value_only::<Text, _>(*text)?,
                SqlValue::Bytes(bytes) => out.push_bind_param_value_only::<Binary, _>(*bytes)?,
                SqlValue::Int(int) => out.push_bind_param_value_only::<BigInt, _>(int)?,
                _ => unreachable!("the two crates are released together"),
            }
        }
        Ok(())
    }
}

impl QueryId for Statement<'_> {
    type QueryId = ();

    const HAS_STATIC_QUERY_ID: bool = false;
}

impl Query for Statement<'_> {
    type SqlType = Untyped;
}

/// The bytes of each column, where they are the same in both formats of the wire.
struct Columns(TxRow);

impl QueryableByName<Pg> for Columns {
    fn build<'a>(row: &impl NamedRow<'a, Pg>) -> deserialize::Result<Self> {
        let columns = (0..row.field_count()).map(|column| {
            let field = Row::get(row, column).ok_or("a row has fewer columns than it says")?;
            let Some(value) = field.value() else { return Ok(None) };
            if !matches!(value.get_oid().get(), TEXT | BYTEA) {
                return Err("a column of the row is neither text nor bytea; cast it".into());
            }
            Ok(Some(Bytes::copy_from_slice(value.as_bytes())))
        });
        columns.collect::<deserialize::Result<_>>().map(Self)
    }
}

/// The types' numbers in `pg_type`, which never change.
const TEXT: u32 = 25;
const BYTEA: u32 = 17;
