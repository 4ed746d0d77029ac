//! The statements of one session, prepared when they are first needed.

use futures_util::future::try_join4;
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
        let kind = Kind::ALL[0];
        let texts = &[
            kind.try_lock(Number::One),
            kind.unlock(Number::One),
            kind.try_lock(Number::Many),
            kind.unlock(Number::Many),
        ];
        // All in one round trip: whoever has just started waits for it.
        let prepared = link.ask(|client| async move {
            let [one, two, three, four] = texts.each_ref().map(|text| client.prepare(text));
            try_join4(one, two, three, four).await
        });
        let (one, two, three, four) = prepared.await?;
        self.tries[kind.index()] = [Some(one), Some(three)];
        self.unlocks[kind.index()] = [Some(two), Some(four)];
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
