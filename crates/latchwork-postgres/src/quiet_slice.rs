//! One wait in the server's queue, which ends without an error and without a line in the server's log.

use std::{future::Future, pin::pin, sync::Arc, time::Duration};

use latchwork_core::engine::EngineError;
use tokio::time::timeout;

use crate::{
    error::StatementError,
    link::{End, Link, is_true},
};

/// A slice that ends this soon is not worth a cancel request, which writes a line to the server's log.
const ENDS_SOON: Duration = Duration::from_millis(60);

/// A cancel request that the server takes before it has begun the statement stops nothing, so it is sent again.
const CANCEL_AGAIN: Duration = Duration::from_millis(20);

/// How a slice has ended.
pub(crate) enum Slice {
    Granted,
    NotGranted,
    Failed(EngineError),
}

/// Runs a statement that waits for at most `length` and says at its end whether it was granted what it waited for. It is
/// cancelled when `abandoned` resolves. An answer may take `patience` longer.
pub(crate) async fn slice(
    link: &mut Link,
    sql: String,
    length: Duration,
    patience: Duration,
    abandoned: impl Future<Output = ()>,
) -> Result<Slice, End> {
    let clock = link.health.clock().clone();
    let ends = clock.now().after(length);
    let (client, canceller) = (Arc::clone(&link.client), link.canceller.clone());
    let mut statement = pin!(link.call_within(length + patience, async move { client.simple_query(&sql).await }));
    let answer = tokio::select! {
        biased;
        answer = &mut statement => answer,
        () = abandoned => {
            if ends.since(clock.now()) < ENDS_SOON {
                statement.await
            } else {
                loop {
                    let (ended, cancelled) =
                        tokio::join!(timeout(CANCEL_AGAIN, statement.as_mut()), canceller.cancel());
                    if let Err(error) = cancelled {
                        // It might still arrive, and hit whatever this session does next.
                        tracing::debug!(target: "latchwork::postgres", %error, "a wait could not be cancelled");
                        if ended.is_err() {
                            statement.await?.ok();
                        }
                        return Err(End::Asked);
                    }
                    if let Ok(answer) = ended {
                        break answer;
                    }
                }
            }
        }
    };
    Ok(match answer? {
        Ok(rows) if is_true(&rows) => Slice::Granted,
        Ok(_) => Slice::NotGranted,
        Err(error) if error.as_db_error().is_some() => Slice::Failed(StatementError::from_driver(error).into_engine()),
        Err(error) => return Err(End::Closed(Some(error))),
    })
}
