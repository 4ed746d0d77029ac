//! The statements of one session, prepared when they are first needed.

use tokio_postgres::Statement;

use crate::{
    link::{End, Link},
    sql::{self, Kind, Number},
};

/// Prepared statements.
#[derive(Debug, Default)]
pub(crate) struct Statements {
    tries: [[Option<Statement>; 2]; 4],
    unlocks: [[Option<Statement>; 2]; 4],
    some: [Option<Statement>; 2],
}

impl Statements {
    /// Prepares what nearly every batch needs.
    pub(crate) async fn prepare_common(&mut self, link: &mut Link) -> Result<(), End> {
        for keys in [Number::One, Number::Many] {
            self.try_lock(link, Kind::ALL[0], keys).await?;
            self.unlock(link, Kind::ALL[0], keys).await?;
        }
        Ok(())
    }

    pub(crate) async fn try_lock(&mut self, link: &mut Link, kind: Kind, keys: Number) -> Result<Statement, End> {
        prepared(&mut self.tries[kind.index()][keys as usize], link, || {
            kind.try_lock(keys)
        })
        .await
    }

    pub(crate) async fn unlock(&mut self, link: &mut Link, kind: Kind, keys: Number) -> Result<Statement, End> {
        prepared(&mut self.unlocks[kind.index()][keys as usize], link, || {
            kind.unlock(keys)
        })
        .await
    }

    pub(crate) async fn take_some(&mut self, link: &mut Link, kind: Kind) -> Result<Statement, End> {
        prepared(&mut self.some[usize::from(kind.is_pair())], link, || {
            sql::take_some(kind.is_pair())
        })
        .await
    }
}

async fn prepared(
    place: &mut Option<Statement>,
    link: &mut Link,
    text: impl FnOnce() -> String,
) -> Result<Statement, End> {
    if let Some(statement) = place {
        return Ok(statement.clone());
    }
    let text = &text();
    let statement = link.ask(|client| async move { client.prepare(text).await }).await?;
    Ok(place.insert(statement).clone())
}
