//! Statements of the layers.

use diesel::{
    PgConnection, QueryResult, RunQueryDsl as _,
    connection::SimpleConnection as _,
    deserialize::{self, QueryableByName},
    pg::Pg,
    result::{DatabaseErrorKind, Error},
    row::{Field as _, NamedRow, Row},
    sql_query,
    sql_types::{BigInt, Binary, Text},
};
use latchwork_http::{
    bytes::Bytes,
    tx::{SqlValue, TxError, TxRow},
};

use crate::errors;

/// Runs one statement and returns the first row, if there is one. It is not kept prepared on the connection: many have a
/// key in their text.
pub(super) fn first_row(connection: &mut PgConnection, statement: Statement) -> Result<Option<TxRow>, TxError> {
    let query = sql_query(statement.sql).into_boxed::<Pg>();
    let query = statement.values.into_iter().fold(query, |query, value| match value {
        Value::Text(text) => query.bind::<Text, _>(text),
        Value::Bytes(bytes) => query.bind::<Binary, _>(bytes),
        Value::Int(int) => query.bind::<BigInt, _>(int),
    });
    let rows: QueryResult<Vec<Columns>> = query.load(connection);
    match rows {
        Ok(rows) => Ok(rows.into_iter().next().map(|Columns(columns)| columns)),
        Err(error) => Err(from_statement(connection, error)),
    }
}

/// What an error means, which has no SQLSTATE: the next statement shows what became of the transaction and the connection.
fn from_statement(connection: &mut PgConnection, error: Error) -> TxError {
    if errors::is_lost(&error) {
        return TxError::unavailable(error);
    }
    let Error::DatabaseError(kind, information) = &error else {
        return TxError::other(error);
    };
    let is_unsorted = matches!(kind, DatabaseErrorKind::Unknown);
    match connection.batch_execute("SELECT 1") {
        Err(next) if errors::is_lost(&next) => TxError::unavailable(error),
        // In a transaction that was aborted before, every statement fails with the same words.
        Err(next) if errors::says(&next, information.message()) => TxError::aborted(error),
        // The layers' statements are well formed; so one that is refused where it stands names what is not there.
        _ if is_unsorted && information.statement_position().is_some() => TxError::setup(error),
        _ if is_unsorted && information.message().starts_with("permission denied") => TxError::setup(error),
        _ => TxError::other(error),
    }
}

/// A statement for another thread.
pub(super) struct Statement {
    sql: String,
    values: Vec<Value>,
}

enum Value {
    Text(String),
    Bytes(Vec<u8>),
    Int(i64),
}

impl Statement {
    pub(super) fn new(sql: &str, values: &[SqlValue<'_>]) -> Self {
        let values = values.iter().map(|value| match value {
            SqlValue::Text(text) => Value::Text((*text).to_owned()),
            SqlValue::Bytes(bytes) => Value::Bytes(bytes.to_vec()),
            SqlValue::Int(int) => Value::Int(*int),
            _ => unreachable!("the two crates are released together"),
        });
        Self {
            sql: sql.to_owned(),
            values: values.collect(),
        }
    }
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
