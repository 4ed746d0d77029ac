//! Running what [`XactWait`] says on a client of the driver.

use latchwork_core::xact::{XactLockError, XactRequest, XactStatement, XactWait};
use tokio::time::timeout;
use tokio_postgres::{Client, Error};

use super::first_text;

pub(super) fn attempt(client: &Client, request: XactRequest) -> impl Future<Output = Result<bool, XactLockError>> {
    run(client, XactWait::attempt(request))
}

/// A cancel request would end an abandoned wait sooner. It is not sent, for it can come too late and stop what the
/// connection does next: the ROLLBACK, whose failure would leave a pooled connection inside an aborted transaction.
/// (One request signals a session twice, and the wait may end by itself meanwhile.) Nothing that the dropped future
/// could still do would prevent that; and the driver's way to send it ends PgBouncer with a fatal error.
pub(super) async fn run(client: &Client, mut wait: XactWait) -> Result<bool, XactLockError> {
    go_on(client, &mut wait).await
}

/// Runs what is left of a wait.
pub(super) async fn go_on(client: &Client, wait: &mut XactWait) -> Result<bool, XactLockError> {
    while let Some(statement) = wait.next()? {
        let answer = send(client, &statement, wait).await?;
        wait.answered(&answer)?;
    }
    Ok(wait.is_granted())
}

async fn send(client: &Client, statement: &XactStatement, wait: &XactWait) -> Result<String, XactLockError> {
    let query = statement.joined();
    let messages = match timeout(statement.answer_within(), client.simple_query(&query)).await {
        Ok(Ok(messages)) => messages,
        Ok(Err(error)) if is_broken(&error) => return Err(wait.lost(error)),
        Ok(Err(error)) => {
            let code = error.code().cloned();
            return Err(wait.failed(code.as_ref().map(|code| code.code()), error));
        }
        Err(_) => return Err(wait.no_answer()),
    };
    first_text(&messages).ok_or_else(|| wait.no_answer())
}

fn is_broken(error: &Error) -> bool {
    use std::error::Error as _;
    error.is_closed() || error.source().is_some_and(|source| source.is::<std::io::Error>())
}
