//! Batches on the wire, one behind the other: while the answers to one are handed out, the server is at the next.

use std::{pin::Pin, time::Duration};

use futures_util::future::{JoinAll, MaybeDone, join_all, maybe_done};
use latchwork_core::{Moment, engine::AcquireRequest};

use crate::{
    batch::{Answer, Batch, Call},
    error::connection_lost,
    inbox::{Inbox, Inquiry, Work},
    link::{End, Link},
    options::Timing,
    room::Room,
    statements::Statements,
};

/// The answers to statements that were sent together, on their way.
pub(crate) struct Answers {
    calls: Pin<Box<MaybeDone<JoinAll<Call>>>>,
    sent: Moment,
}

impl Answers {
    /// Sends statements without waiting for their answers.
    pub(crate) async fn to(calls: Vec<Call>, link: &mut Link) -> Result<Self, End> {
        let mut calls = Box::pin(maybe_done(join_all(calls)));
        let sent = link.send(calls.as_mut()).await?;
        Ok(Self { calls, sent })
    }

    /// The moment when the statements were sent.
    pub(crate) const fn sent(&self) -> Moment {
        self.sent
    }

    /// Waits for the answers, one for each statement. They are overdue after `limit`.
    pub(crate) async fn arrive(&mut self, link: &mut Link, limit: Duration) -> Result<Vec<Answer>, End> {
        let calls = &mut self.calls;
        let arrived = async {
            calls.as_mut().await;
            Ok(calls.as_mut().take_output().unwrap_or_default())
        };
        let answers = link.answer_to(self.sent, limit, arrived).await?;
        answers.map_err(|error| End::Closed(Some(error)))
    }
}

/// A batch, and what is to be done when its answers are there.
pub(crate) struct Load {
    pub(crate) batch: Batch,
    /// How many of its requests were counted as pending.
    pub(crate) tries: usize,
    pub(crate) probes: Vec<AcquireRequest>,
    pub(crate) inquiries: Vec<Inquiry>,
}

impl Load {
    /// Answers everything with the end of the connection. Nobody may believe in the session any more when the first is
    /// told.
    fn fail(self, link: &Link, end: End, room: &Room) -> (End, usize) {
        link.health.lose();
        let error = connection_lost(&end.to_string());
        self.batch.fail(&error, room);
        Work {
            probes: self.probes,
            inquiries: self.inquiries,
            ..Work::default()
        }
        .fail(&error);
        (end, self.tries)
    }
}

/// A batch that was sent.
pub(crate) struct InFlight {
    load: Load,
    /// None if the batch has no statements.
    answers: Option<Answers>,
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
            inquiries,
        } = work;
        let all_releases = || releases.into_iter().chain(inbox.take_releases()).collect();
        let load = Load {
            batch: Batch::new(asks, slots, all_releases, link.health.id(), room),
            tries,
            probes,
            inquiries,
        };
        match Self::start(&load.batch, link, statements).await {
            Ok(answers) => Ok(Self { load, answers }),
            Err(end) => Err(load.fail(link, end, room)),
        }
    }

    async fn start(batch: &Batch, link: &mut Link, statements: &mut Statements) -> Result<Option<Answers>, End> {
        let calls = batch.calls(link, statements).await?;
        if calls.is_empty() {
            return Ok(None);
        }
        Answers::to(calls, link).await.map(Some)
    }

    /// Waits for the answers and counts them. Nobody is told anything yet, but when the connection has ended.
    pub(crate) async fn arrive(mut self, link: &mut Link, timing: Timing, room: &Room) -> Result<Load, (End, usize)> {
        let before = link.held;
        match self.judge(link, timing).await {
            Ok(()) => Ok(self.load),
            Err(end) => {
                // What the batch has changed is gone with the session; so only what was counted before is given back.
                link.held = before;
                Err(self.load.fail(link, end, room))
            }
        }
    }

    async fn judge(&mut self, link: &mut Link, timing: Timing) -> Result<(), End> {
        let batch = &mut self.load.batch;
        let Some(answers) = &mut self.answers else {
            // All was answered without the server, so nothing is known of it. Work like this must not keep pings away.
            // And it may come for ever, with nothing to wait for.
            tokio::task::consume_budget().await;
            link.ping_if_due().await?;
            return batch.judge(link, Vec::new()).await;
        };
        let answers = answers.arrive(link, timing.ping_limit()).await?;
        batch.judge(link, answers).await
    }
}
