//! Running the statements: in slices, within the limit, and cancelled when nobody waits any more.

use std::future::poll_fn;
use std::pin::Pin;
use std::task::Poll;
use std::time::Duration;

use futures_util::{StreamExt as _, TryStreamExt as _};
use tokio::runtime::Handle;
use tokio::time::{Instant, timeout};
use tokio_postgres::{CancelToken, Client, Error, SimpleQueryMessage, SimpleQueryStream};

use super::XactLockError;
use super::sql::{self, Outcome, Request};
use crate::tls::TlsConnector;

/// How long the server waits in one statement: a waiting statement holds up vacuum.
const SLICE: Duration = Duration::from_secs(5);
/// How long an answer may take beyond the time that the server was told to wait.
const PATIENCE: Duration = Duration::from_secs(3);

pub(super) async fn attempt(client: &Client, request: Request) -> Result<bool, XactLockError> {
    match run(client, request, &request.attempt(), Duration::ZERO, None).await? {
        Outcome::Granted => Ok(true),
        Outcome::Busy => Ok(false),
        other => Err(refusal(request, other)),
    }
}

pub(super) async fn wait(
    client: &Client,
    request: Request,
    limit: Option<Duration>,
    cancel_tls: Option<TlsConnector>,
) -> Result<(), XactLockError> {
    let begun = Instant::now();
    loop {
        let left = limit.map(|limit| limit.saturating_sub(begun.elapsed()));
        let slice = left.map_or_else(next_slice, |left| left.min(next_slice()));
        let statement = if slice.is_zero() {
            request.attempt()
        } else {
            request.slice(slice)
        };
        match run(client, request, &statement, slice, cancel_tls.clone()).await? {
            Outcome::Granted => return Ok(()),
            Outcome::Busy => match limit {
                Some(limit) if begun.elapsed() >= limit => {
                    return Err(XactLockError::TimedOut {
                        key: request.key,
                        limit,
                    });
                }
                _ => {}
            },
            other => return Err(refusal(request, other)),
        }
    }
}

/// Slices differ by a fifth either way, so that waiters do not move in step.
fn next_slice() -> Duration {
    SLICE.mul_f64(0.8 + 0.4 * fastrand::f64())
}

fn refusal(request: Request, outcome: Outcome) -> XactLockError {
    let key = request.key;
    match outcome {
        Outcome::Stale(isolation) => XactLockError::StaleSnapshot { key, isolation },
        Outcome::Standby => XactLockError::Standby { key },
        Outcome::Granted | Outcome::Busy | Outcome::Cancelled => XactLockError::Cancelled { key },
    }
}

async fn run(
    client: &Client,
    request: Request,
    statement: &str,
    server_waits: Duration,
    cancel_tls: Option<TlsConnector>,
) -> Result<Outcome, XactLockError> {
    let key = request.key;
    let sent = client.simple_query_raw(statement).await;
    let answer = sent.map_err(|error| XactLockError::from_driver(key, error))?;
    let mut answer = Answer {
        stream: Some(Box::pin(answer)),
        token: client.cancel_token(),
        cancel_tls,
    };
    match timeout(server_waits + PATIENCE, answer.outcome()).await {
        Ok(Ok(Some(outcome))) => Ok(outcome),
        Ok(Ok(None)) => Err(XactLockError::NoAnswer { key }),
        Ok(Err(error)) => Err(XactLockError::from_driver(key, error)),
        Err(_) => Err(XactLockError::NoAnswer { key }),
    }
}

/// The answer to a statement that may be waiting in the server. Dropped before it is complete, it has the statement
/// cancelled.
struct Answer {
    /// `None` once the answer is complete.
    stream: Option<Pin<Box<SimpleQueryStream>>>,
    token: CancelToken,
    cancel_tls: Option<TlsConnector>,
}

impl Answer {
    async fn outcome(&mut self) -> Result<Option<Outcome>, Error> {
        let mut outcome = None;
        while let Some(stream) = &mut self.stream {
            match stream.try_next().await {
                Ok(Some(SimpleQueryMessage::Row(row))) => outcome = sql::outcome(&row),
                Ok(Some(_)) => {}
                Ok(None) => self.stream = None,
                Err(error) => {
                    self.stream = None;
                    return Err(error);
                }
            }
        }
        Ok(outcome)
    }
}

impl Drop for Answer {
    fn drop(&mut self) {
        let Some(stream) = self.stream.take() else { return };
        // Without a runtime nothing can be sent; the wait then ends with its slice.
        let Ok(runtime) = Handle::try_current() else { return };
        runtime.spawn(cancel(stream, self.token.clone(), self.cancel_tls.take()));
    }
}

/// Sends a cancel request, unless the answer comes first: then there is nothing left to cancel, and the request would
/// hit whatever the connection does next.
async fn cancel(mut stream: Pin<Box<SimpleQueryStream>>, token: CancelToken, tls: Option<TlsConnector>) {
    let request = async {
        let tls = tls.unwrap_or_else(TlsConnector::encrypt_only);
        timeout(PATIENCE, token.cancel_query(tls)).await
    };
    let complete = poll_fn(|cx| {
        while let Poll::Ready(message) = stream.poll_next_unpin(cx) {
            if !matches!(message, Some(Ok(_))) {
                return Poll::Ready(());
            }
        }
        Poll::Pending
    });
    tokio::select! {
        biased;
        () = complete => {}
        sent = request => {
            if !matches!(sent, Ok(Ok(()))) {
                tracing::debug!(
                    target: "latchwork::postgres",
                    "an abandoned wait in a transaction could not be cancelled, and ends with its slice"
                );
            }
        }
    }
}
