//! The prepared statements of the session of the rate limits.

use std::sync::Arc;

use latchwork_core::rate::MAX_QUOTAS;
use tokio_postgres::{Error as DriverError, Statement, types::ToSql};

use super::{
    batch::{Arguments, Part},
    sql,
};
use crate::{
    batch::Call,
    link::{End, Link},
};

/// The prepared statements of one connection.
#[derive(Default)]
pub(super) struct Statements {
    charge: [Option<Statement>; MAX_QUOTAS],
    sweep: Option<Statement>,
}

/// A statement, or why there is none.
pub(super) struct Prepared(Result<Statement, DriverError>);

impl Statements {
    /// Whether nothing is to be prepared before these parts can be sent.
    pub(super) fn are_there_for(&self, parts: &[Part]) -> bool {
        parts.iter().all(|part| self.charge[part.quotas - 1].is_some())
    }

    /// The statement for so many quotas.
    pub(super) async fn charge(&mut self, link: &mut Link, quotas: usize) -> Result<Prepared, End> {
        let prepared = prepared(&mut self.charge[quotas - 1], link, || sql::charge(quotas));
        prepared.await.map(Prepared)
    }

    /// The statement that sweeps.
    pub(super) async fn sweep(&mut self, link: &mut Link) -> Result<Result<Statement, DriverError>, End> {
        prepared(&mut self.sweep, link, sql::sweep).await
    }
}

impl Prepared {
    /// Runs the statement. Where there is none, the answer says why.
    pub(super) fn call(self, link: &Link, arguments: Arguments) -> Call {
        let client = Arc::clone(&link.client);
        Box::pin(async move {
            let arguments: Vec<&(dyn ToSql + Sync)> = arguments.iter().map(|array| array as _).collect();
            client.query(&self.0?, &arguments).await
        })
    }
}

async fn prepared(
    place: &mut Option<Statement>,
    link: &mut Link,
    text: impl FnOnce() -> String,
) -> Result<Result<Statement, DriverError>, End> {
    if let Some(statement) = place {
        return Ok(Ok(statement.clone()));
    }
    let text = &text();
    let made = link
        .ask_or_refuse(|client| async move { client.prepare(text).await })
        .await?;
    Ok(made.inspect(|statement| *place = Some(statement.clone())))
}
