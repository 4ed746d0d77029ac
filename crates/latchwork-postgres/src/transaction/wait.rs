//! Running the statements: one attempt, then slices within the limit.

use std::time::Duration;

use tokio::time::{Instant, timeout};
use tokio_postgres::{Client, SimpleQueryMessage};

use super::XactLockError;
use super::sql::{self, Outcome, Request};

/// How long the server waits in one statement. A waiting statement holds up vacuum, and an abandoned one the
/// connection.
///
/// A cancel request would end an abandoned wait sooner. It is not sent, for it can come too late and stop what the
/// connection does next: the ROLLBACK, whose failure would leave a pooled connection inside an aborted transaction.
/// (One request signals a session twice, and the wait may end by itself meanwhile.) Nothing that the dropped future
/// could still do would prevent that; and the driver's way to send it ends PgBouncer with a fatal error.
const SLICE: Duration = Duration::from_secs(1);
/// How long an answer may take beyond the time that the server was told to wait.
const PATIENCE: Duration = Duration::from_secs(3);

pub(super) async fn attempt(client: &Client, request: Request) -> Result<bool, XactLockError> {
    run(client, request, &request.attempt(), Duration::ZERO).await
}

pub(super) async fn wait(client: &Client, request: Request, limit: Option<Duration>) -> Result<(), XactLockError> {
    let begun = Instant::now();
    let mut granted = attempt(client, request).await?;
    while !granted {
        let left = limit.map_or(Duration::MAX, |limit| limit.saturating_sub(begun.elapsed()));
        if left.is_zero() {
            return Err(XactLockError::TimedOut {
                key: request.key,
                limit: limit.unwrap_or_default(),
            });
        }
        // Slices differ by a fifth either way, so that waiters do not move in step.
        let slice = left.min(SLICE.mul_f64(0.8 + 0.4 * fastrand::f64()));
        granted = run(client, request, &request.slice(slice), slice).await?;
    }
    Ok(())
}

async fn run(
    client: &Client,
    request: Request,
    statement: &str,
    server_waits: Duration,
) -> Result<bool, XactLockError> {
    let key = request.key;
    let answered = timeout(server_waits + PATIENCE, client.simple_query(statement)).await;
    let messages = answered
        .map_err(|_| XactLockError::NoAnswer { key })?
        .map_err(|error| XactLockError::from_driver(key, error))?;
    let outcome = messages.iter().find_map(|message| match message {
        SimpleQueryMessage::Row(row) => sql::outcome(row),
        _ => None,
    });
    match outcome {
        Some(Outcome::Granted) => Ok(true),
        Some(Outcome::Busy) => Ok(false),
        Some(Outcome::Cancelled) => Err(XactLockError::Cancelled { key }),
        Some(Outcome::Standby) => Err(XactLockError::Standby { key }),
        Some(Outcome::Stale(isolation)) => Err(XactLockError::StaleSnapshot { key, isolation }),
        None => Err(XactLockError::NoAnswer { key }),
    }
}
