//! Batches on the wire, one behind the other: while the answers to one are handed out, the server is at the next.

use std::pin::Pin;

use futures_util::future::{JoinAll, MaybeDone, join_all, maybe_done};
use latchwork_core::engine::{AcquireRequest, AnnounceRequest, EngineError};

use crate::{
    batch::{Batch, Call},
    error::connection_lost,
    inbox::{Inbox, Work},
    link::{End, Link, Sent},
    options::Timing,
    room::Room,
    statements::Statements,
};

/// A batch that was sent, and what is to be done when its answers are there.
pub(crate) struct InFlight {
    batch: Batch,
    answers: Pin<Box<MaybeDone<JoinAll<Call>>>>,
    sent: Sent,
    /// How many of its requests were counted as pending.
    pub(crate) tries: usize,
    pub(crate) probes: Vec<AcquireRequest>,
    pub(crate) announces: Vec<AnnounceRequest>,
}

impl InFlight {
    /// Makes a batch of the work and sends it. If the connection has ended, everything is answered with that.
    pub(crate) async fn send(
        work: Work,
        inbox: &Inbox,
        link: &mut Link,
        statements: &mut Statements,
        room: &Room,
    ) -> Result<Self, (End, usize)> {
        let tries = work.tries();
        let Work {
            releases,
            asks,
            probes,
            slots,
            announces,
        } = work;
        let all_releases = || releases.into_iter().chain(inbox.take_releases()).collect();
        let batch = Batch::new(asks, slots, all_releases, link.health.id(), room);
        match Self::start(&batch, link, statements).await {
            Ok((answers, sent)) => Ok(Self {
                batch,
                answers,
                sent,
                tries,
                probes,
                announces,
            }),
            Err(end) => {
                let error = lost(link, &end);
                batch.fail(&error, room);
                Work {
                    probes,
                    announces,
                    ..Work::default()
                }
                .fail(&error);
                Err((end, tries))
            }
        }
    }

    async fn start(
        batch: &Batch,
        link: &mut Link,
        statements: &mut Statements,
    ) -> Result<(Pin<Box<MaybeDone<JoinAll<Call>>>>, Sent), End> {
        let calls = batch.calls(link, statements).await?;
        let mut answers = Box::pin(maybe_done(join_all(calls)));
        let sent = link.send(answers.as_mut()).await?;
        Ok((answers, sent))
    }

    /// Waits for the answers and counts them. Nobody is told anything yet, but when the connection has ended.
    pub(crate) async fn arrive(
        mut self,
        link: &mut Link,
        timing: Timing,
        room: &Room,
    ) -> Result<Arrived, (End, usize)> {
        let before = link.held;
        match self.judge(link, timing).await {
            Ok(()) => {
                let Self {
                    batch,
                    tries,
                    probes,
                    announces,
                    ..
                } = self;
                Ok(Arrived {
                    batch,
                    tries,
                    probes,
                    announces,
                })
            }
            Err(end) => {
                // What the batch has changed is gone with the session; so only what was counted before is given back.
                link.held = before;
                let Self {
                    batch,
                    tries,
                    probes,
                    announces,
                    ..
                } = self;
                let error = lost(link, &end);
                batch.fail(&error, room);
                Work {
                    probes,
                    announces,
                    ..Work::default()
                }
                .fail(&error);
                Err((end, tries))
            }
        }
    }

    async fn judge(&mut self, link: &mut Link, timing: Timing) -> Result<(), End> {
        let Self {
            batch, answers, sent, ..
        } = self;
        let arrived = async {
            answers.as_mut().await;
            Ok(answers.as_mut().take_output().unwrap_or_default())
        };
        let answers = link.answer_to(*sent, timing.ping_limit(), arrived).await?;
        batch
            .judge(link, answers.map_err(|error| End::Closed(Some(error)))?)
            .await
    }
}

/// A batch whose answers have been counted.
pub(crate) struct Arrived {
    pub(crate) batch: Batch,
    pub(crate) tries: usize,
    pub(crate) probes: Vec<AcquireRequest>,
    pub(crate) announces: Vec<AnnounceRequest>,
}

/// Nobody may believe in the session any more when the first is told that it has ended.
fn lost(link: &Link, end: &End) -> EngineError {
    link.health.lose();
    connection_lost(&end.to_string())
}
