use std::fmt;
use std::future::{Future, poll_fn};
use std::pin::pin;
use std::task::{Context, Poll};

use tokio_postgres::{AsyncMessage, Connection, Socket};

use crate::tls::Encrypted;

/// The bytes of one connection: sends what the client hands over and sorts what the server answers.
///
/// Its owner polls it, in the task that also uses the client, so that a statement costs no switch between tasks.
pub struct Wire {
    connection: Connection<Socket, Encrypted<Socket>>,
    ended: bool,
}

impl Wire {
    pub(crate) fn new(connection: Connection<Socket, Encrypted<Socket>>) -> Self {
        Self {
            connection,
            ended: false,
        }
    }

    /// Moves bytes, and gives the next message that belongs to no statement.
    ///
    /// `None` and an error are the end: the connection is closed.
    pub fn poll_message(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<AsyncMessage, tokio_postgres::Error>>> {
        if self.ended {
            return Poll::Ready(None);
        }
        let polled = self.connection.poll_message(cx);
        if matches!(polled, Poll::Ready(None | Some(Err(_)))) {
            self.ended = true;
        }
        polled
    }

    /// Says whether the connection has ended.
    #[must_use]
    pub fn is_ended(&self) -> bool {
        self.ended
    }

    /// Reads a value that the server reported when the session began, such as `server_version`.
    #[must_use]
    pub fn parameter(&self, name: &str) -> Option<&str> {
        self.connection.parameter(name)
    }

    /// Moves bytes until the connection has ended. The client must be gone, or this waits for the server to hang up.
    ///
    /// # Cancel safety
    ///
    /// May be dropped; the connection then closes without taking leave.
    pub async fn finish(&mut self) {
        poll_fn(|cx| {
            while let Poll::Ready(message) = self.poll_message(cx) {
                if !matches!(message, Some(Ok(_))) {
                    return Poll::Ready(());
                }
            }
            Poll::Pending
        })
        .await;
    }

    /// Runs a statement while moving the bytes for it. When the connection ends meanwhile, its error is the one
    /// returned, since it says more than "closed".
    ///
    /// # Cancel safety
    ///
    /// Dropped midway, the statement may still run; its answer is discarded by later polls.
    pub async fn drive<T>(
        &mut self,
        statement: impl Future<Output = Result<T, tokio_postgres::Error>>,
    ) -> Result<T, tokio_postgres::Error> {
        let mut statement = pin!(statement);
        let mut end = None;
        poll_fn(|cx| {
            // Once to hand the statement over before bytes are moved, and once to take the answer that they brought.
            if let Poll::Ready(done) = statement.as_mut().poll(cx) {
                return Poll::Ready(done);
            }
            while let Poll::Ready(message) = self.poll_message(cx) {
                match message {
                    Some(Ok(_)) => {}
                    Some(Err(error)) => end = Some(error),
                    None => break,
                }
            }
            statement.as_mut().poll(cx)
        })
        .await
        .map_err(|error| if error.is_closed() { end.unwrap_or(error) } else { error })
    }
}

impl fmt::Debug for Wire {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Wire")
            .field("ended", &self.ended)
            .finish_non_exhaustive()
    }
}
