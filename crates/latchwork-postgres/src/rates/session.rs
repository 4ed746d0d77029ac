//! The session of the rate limits, and the one task that owns it. It connects, carries batches, sweeps, pings, and
//! connects anew when the connection was lost. Whatever happens, nobody is kept waiting for longer than an answer may
//! take.

use std::{
    error::Error,
    future::poll_fn,
    pin::pin,
    sync::{Arc, Weak},
    task::Poll,
    time::Duration,
};

use latchwork_core::engine::{EngineError, EngineErrorKind};
use tokio::{
    task::yield_now,
    time::{sleep, timeout},
};
use tokio_postgres::{Error as DriverError, Row};
use tracing::warn;

use super::{
    RateOptions,
    asked::Asked,
    batch::{Arguments, Batch, Part},
    inbox::{Inbox, Wake},
    sql,
    statements::Statements,
    sweep::{self, Sweep},
};
use crate::{
    backoff::{Backoff, GOOD_AFTER},
    connect::{ConnectError, Connected},
    error::{StatementError, connection_lost, silent, unreachable},
    in_flight::Answers,
    link::{End, Link, OnSilence},
    options::Timing,
    shared::Shared,
    sqlstate::{Condition, condition},
};

/// What others see of the session.
#[derive(Debug)]
pub(super) struct RateSession {
    pub(super) inbox: Inbox,
    asked: Asked,
    answer_within: Duration,
    sweep_interval: Duration,
}

/// Ends the session however its task ends: with its runtime, too.
struct Ending(Arc<RateSession>);

impl Drop for Ending {
    fn drop(&mut self) {
        self.0.inbox.end();
        self.0.asked.fail(&EngineError::new(EngineErrorKind::Closed));
    }
}

/// Why a connection is waited on.
enum Event {
    Wake(Wake),
    PingDue,
    SweepDue,
}

impl RateSession {
    pub(super) fn new(options: &RateOptions) -> Self {
        Self {
            inbox: Inbox::default(),
            asked: Asked::default(),
            answer_within: options.answer_within,
            sweep_interval: options.sweep_interval,
        }
    }

    /// Owns the session until the engine closes.
    pub(super) async fn run(self: Arc<Self>, shared: Arc<Shared>) {
        let _ending = Ending(Arc::clone(&self));
        let mut backoff = Backoff::default();
        let mut sweep = Sweep::new(self.sweep_interval, &shared.clock);
        while !self.inbox.is_closing() {
            let error = match self.connect(&shared).await {
                Ok(connected) => {
                    let begun = shared.clock.now();
                    let end = self.serve(&shared, connected, &mut sweep).await;
                    if shared.clock.now().since(begun) >= GOOD_AFTER {
                        backoff.reset();
                        continue;
                    }
                    connection_lost(&end.to_string())
                }
                Err(error) => unreachable(error),
            };
            // Until the next attempt nobody is kept waiting for it.
            self.inbox.outage(&error);
            self.pause(backoff.next()).await;
        }
    }

    /// Connects. Nobody is kept waiting for that for longer than an answer may take.
    async fn connect(&self, shared: &Arc<Shared>) -> Result<Connected, ConnectError> {
        let closing = poll_fn(|context| self.inbox.poll_closing(context));
        let connecting = async {
            let mut connecting = pin!(shared.connect());
            match timeout(self.answer_within, connecting.as_mut()).await {
                Ok(connected) => connected,
                Err(_) => {
                    self.inbox.outage(&silent(self.answer_within));
                    connecting.await
                }
            }
        };
        tokio::select! {
            connected = connecting => connected,
            () = closing => Err(ConnectError::TimedOut {
                server: "the server".to_owned(),
                limit: Duration::ZERO,
            }),
        }
    }

    /// Waits, or until the engine closes.
    async fn pause(&self, pause: Duration) {
        let mut timer = pin!(sleep(pause));
        poll_fn(|context| {
            if self.inbox.poll_closing(context).is_ready() {
                return Poll::Ready(());
            }
            timer.as_mut().poll(context)
        })
        .await;
    }

    /// Uses a connection until it ends.
    async fn serve(self: &Arc<Self>, shared: &Arc<Shared>, connected: Connected, sweep: &mut Sweep) -> End {
        let timing = Timing::new(shared.options.timing.ping_interval(), self.answer_within);
        let mut link = shared.link_with(connected, timing, self.on_silence());
        let end = match self.work(shared, &mut link, sweep).await {
            Ok(()) => End::Asked,
            Err(end) => end,
        };
        self.asked.fail(&connection_lost(&end.to_string()));
        if matches!(end, End::Asked) {
            link.close().await;
        }
        end
    }

    /// Those who wait are told, and nobody is kept waiting until an answer comes after all.
    fn on_silence(self: &Arc<Self>) -> OnSilence {
        let session: Weak<Self> = Arc::downgrade(self);
        Arc::new(move |limit| {
            if let Some(session) = session.upgrade() {
                let error = silent(limit);
                session.inbox.outage(&error);
                session.asked.fail(&error);
            }
        })
    }

    async fn work(&self, shared: &Shared, link: &mut Link, sweep: &mut Sweep) -> Result<(), End> {
        let mut statements = Statements::default();
        link.end_what_is_held_up(sql::HELD_UP).await?;
        // If the table is not there, whoever asks is told.
        let _ = statements.charge(link, 1).await?;
        self.inbox.outage_ended();
        let mut in_flight = None;
        loop {
            in_flight = match in_flight {
                Some(answers) => self.carry(link, &mut statements, sweep, answers).await?,
                None => match self.next_event(link, sweep).await? {
                    Event::Wake(Wake::Work(batch)) => Some(self.send(link, &mut statements, batch.parts()).await?),
                    Event::Wake(Wake::Close) => return Ok(()),
                    Event::PingDue => link.ping().await.map(|()| None)?,
                    Event::SweepDue => {
                        self.take_turn(shared, link, &mut statements, sweep).await?;
                        None
                    }
                },
            };
            if in_flight.is_none() {
                if let Some(behind) = sweep.behind() {
                    self.sweep_on(link, &mut statements, sweep, behind).await?;
                }
                // Any answer ends a silence.
                self.inbox.outage_ended();
            }
        }
    }

    async fn next_event(&self, link: &mut Link, sweep: &Sweep) -> Result<Event, End> {
        let ping_due = link.ping_due();
        link.idle(|now, context| {
            // Before the work, which may never pause.
            if sweep.is_due(now) {
                return Poll::Ready(Event::SweepDue);
            }
            if let Poll::Ready(wake) = self.inbox.poll_work(context) {
                return Poll::Ready(Event::Wake(wake));
            }
            if sweep.behind().is_some() {
                return Poll::Ready(Event::SweepDue);
            }
            if ping_due <= now {
                return Poll::Ready(Event::PingDue);
            }
            Poll::Pending
        })
        .await
    }

    /// Sends all that a batch asks for.
    async fn send(&self, link: &mut Link, statements: &mut Statements, parts: Vec<Part>) -> Result<Answers, End> {
        let arguments: Vec<(usize, Arguments)> = parts.iter().map(|part| (part.quotas, part.arguments())).collect();
        self.asked.put(parts);
        let mut calls = Vec::with_capacity(arguments.len());
        for (quotas, arguments) in arguments {
            calls.push(statements.charge(link, quotas).await?.call(link, arguments));
        }
        Answers::to(calls, link).await
    }

    /// Waits for a batch, sends what has collected meanwhile, and hands the answers out. Returns what it has sent.
    async fn carry(
        &self,
        link: &mut Link,
        statements: &mut Statements,
        sweep: &Sweep,
        mut answers: Answers,
    ) -> Result<Option<Answers>, End> {
        let arrived = answers.arrive(link, self.answer_within).await?;
        self.inbox.outage_ended();
        // Those who are about to ask get into this batch: another costs as much as several rows of this one. The server
        // is idle for no longer than the tasks take that can run now.
        if !self.inbox.is_empty() {
            yield_now().await;
        }
        // After a silence there is nobody left to answer.
        let parts = self.asked.take();
        let now = link.health.clock().now();
        let goes_on = arrived.iter().all(Result::is_ok) && sweep.behind().is_none() && !sweep.is_due(now);
        let mut next = if goes_on {
            self.inbox.take_work().map(Batch::parts)
        } else {
            None
        };
        // The server is at the next batch while the answers to this one are handed out. But nobody whose answer is
        // there waits until a statement is prepared for others.
        let ahead = match next.take_if(|parts| statements.are_there_for(parts)) {
            Some(parts) => Some(self.send(link, statements, parts).await),
            None => None,
        };
        for (part, answer) in parts.into_iter().zip(arrived) {
            match answer {
                Ok(rows) => part.answer(&rows, answers.sent()),
                Err(error) => {
                    *statements = Statements::default();
                    part.fail(&judge(error)?);
                }
            }
        }
        match next {
            Some(parts) => self.send(link, statements, parts).await.map(Some),
            None => ahead.transpose(),
        }
    }

    /// Asks whether it is this process that sweeps now.
    async fn take_turn(
        &self,
        shared: &Shared,
        link: &mut Link,
        statements: &mut Statements,
        sweep: &mut Sweep,
    ) -> Result<(), End> {
        let mut mine = false;
        if sweep.behind().is_some() {
            return Ok(());
        }
        if let Some((row, quotas)) = sweep::turn(self.sweep_interval) {
            let part = Part::of_one(row, quotas);
            let call = statements.charge(link, part.quotas).await?.call(link, part.arguments());
            let answer = link.call(call).await?;
            mine = answer.is_ok_and(|rows| part.is_admitted(&rows));
        }
        sweep.turn(mine, &shared.clock);
        Ok(())
    }

    /// Deletes what no longer matters among the next rows.
    async fn sweep_on(
        &self,
        link: &mut Link,
        statements: &mut Statements,
        sweep: &mut Sweep,
        (key, quotas): (i64, i64),
    ) -> Result<(), End> {
        let Ok(statement) = statements.sweep(link).await? else {
            sweep.came_to(None);
            return Ok(());
        };
        let client = Arc::clone(&link.client);
        let lock = sweep::key().as_bigint();
        let swept = link
            .call(async move {
                client
                    .query_opt(&statement, &[&key, &quotas, &sweep::ROWS, &lock])
                    .await
            })
            .await?;
        let row = match swept {
            Ok(row) => row,
            Err(error) => {
                // The next turn may do better.
                warn!(target: "latchwork::postgres", error = &error as &dyn Error, "cannot sweep the rate limits");
                None
            }
        };
        let is_full = |row: &Row| row.get::<_, i64>(0) == sweep::ROWS;
        sweep.came_to(row.filter(is_full).map(|row| (row.get(2), row.get(3))));
        Ok(())
    }
}

/// Words a refused statement, or says that the connection is of no use.
fn judge(error: DriverError) -> Result<EngineError, End> {
    match condition(&error) {
        // It was the primary once. The next connection looks for another.
        Some(Condition::ReadOnly | Condition::SessionEnded) | None => Err(End::Closed(Some(error))),
        Some(_) => Ok(StatementError::from_driver_of_tables(error).into_engine()),
    }
}
