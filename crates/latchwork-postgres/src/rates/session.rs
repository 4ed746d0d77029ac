//! The session of the rate limits, and the one task that owns it. It connects, carries batches, sweeps, pings, and
//! connects anew when the connection was lost. Whatever happens, nobody is kept waiting for longer than an answer may
//! take.

use std::{
    collections::HashMap,
    error::Error,
    future::poll_fn,
    mem,
    pin::pin,
    sync::{Arc, Mutex, Weak},
    task::Poll,
    time::Duration,
};

use futures_util::future::join_all;
use latchwork_core::{
    engine::{EngineError, EngineErrorKind},
    rate::MAX_QUOTAS,
};
use tokio::time::{sleep, timeout};
use tokio_postgres::{Error as DriverError, Row, Statement, types::ToSql};
use tracing::warn;

use super::{
    RateOptions,
    batch::{Arguments, Batch, Outcome, Part},
    inbox::{Inbox, Wake},
    sql,
    sweep::{self, Sweep},
};
use crate::{
    backoff::{Backoff, GOOD_AFTER},
    connect::{ConnectError, Connected},
    error::{StatementError, connection_lost, unreachable},
    link::{End, Link, OnSilence},
    options::Timing,
    shared::Shared,
    sqlstate::{Condition, condition},
    sync::lock,
};

/// What others see of the session.
#[derive(Debug)]
pub(super) struct RateSession {
    pub(super) inbox: Inbox,
    in_flight: InFlight,
    answer_within: Duration,
    sweep_interval: Duration,
}

/// Those whose requests are on the wire. They are here, and not with the task that waits for the answers, so that a
/// silence of the server can answer them.
#[derive(Debug, Default)]
struct InFlight(Mutex<Vec<Part>>);

/// Ends the session however its task ends: with its runtime, too.
struct Ending(Arc<RateSession>);

impl Drop for Ending {
    fn drop(&mut self) {
        self.0.inbox.end();
        self.0.in_flight.fail(&EngineError::new(EngineErrorKind::Closed));
    }
}

/// Why a connection is waited on.
enum Event {
    Wake(Wake),
    PingDue,
    SweepDue,
}

/// The prepared statements of one connection.
#[derive(Default)]
struct Statements {
    charge: [Option<Statement>; MAX_QUOTAS],
    sweep: Option<Statement>,
}

impl RateSession {
    pub(super) fn new(options: &RateOptions) -> Self {
        Self {
            inbox: Inbox::default(),
            in_flight: InFlight::default(),
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
        self.in_flight.fail(&connection_lost(&end.to_string()));
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
                session.in_flight.fail(&error);
            }
        })
    }

    async fn work(&self, shared: &Shared, link: &mut Link, sweep: &mut Sweep) -> Result<(), End> {
        let mut statements = Statements::default();
        // If the table is not there, whoever asks is told.
        let _ = statements.charge(link, 1).await?;
        self.inbox.outage_ended();
        loop {
            match self.next_event(link, sweep).await? {
                Event::Wake(Wake::Work(batch)) => self.carry(link, &mut statements, batch).await?,
                Event::Wake(Wake::Close) => return Ok(()),
                Event::PingDue => link.ping().await?,
                Event::SweepDue => self.take_turn(shared, link, &mut statements, sweep).await?,
            }
            if let Some(behind) = sweep.behind() {
                self.sweep_on(link, &mut statements, sweep, behind).await?;
            }
            // Any answer ends a silence.
            self.inbox.outage_ended();
        }
    }

    async fn next_event(&self, link: &mut Link, sweep: &Sweep) -> Result<Event, End> {
        let ping_due = link.ping_due();
        link.idle(|now, context| {
            if let Poll::Ready(wake) = self.inbox.poll_work(context) {
                return Poll::Ready(Event::Wake(wake));
            }
            if sweep.is_due(now) || sweep.behind().is_some() {
                return Poll::Ready(Event::SweepDue);
            }
            if ping_due <= now {
                return Poll::Ready(Event::PingDue);
            }
            Poll::Pending
        })
        .await
    }

    /// Charges all that a batch asks for, and answers.
    async fn carry(&self, link: &mut Link, statements: &mut Statements, batch: Batch) -> Result<(), End> {
        let parts = batch.parts();
        let arguments: Vec<(usize, Arguments)> = parts.iter().map(|part| (part.quotas, part.arguments())).collect();
        self.in_flight.put(parts);
        let mut calls = Vec::with_capacity(arguments.len());
        for (quotas, arguments) in arguments {
            let statement = statements.charge(link, quotas).await?;
            calls.push(call(Arc::clone(&link.client), statement, arguments));
        }
        let at = link.health.clock().now();
        let answers = link.call(async { Ok(join_all(calls).await) }).await?;
        let answers = answers.map_err(|error| End::Closed(Some(error)))?;
        // After a silence there is nobody left to answer.
        for (part, answer) in self.in_flight.take().into_iter().zip(answers) {
            match answer {
                Ok(outcomes) => part.answer(&outcomes, at),
                Err(error) => {
                    *statements = Statements::default();
                    part.fail(&judge(error)?);
                }
            }
        }
        Ok(())
    }

    /// Asks whether it is this process that sweeps now.
    async fn take_turn(
        &self,
        shared: &Shared,
        link: &mut Link,
        statements: &mut Statements,
        sweep: &mut Sweep,
    ) -> Result<(), End> {
        if sweep.behind().is_some() {
            return Ok(());
        }
        let mut mine = false;
        if let Some((row, quotas)) = sweep::turn(self.sweep_interval) {
            let statement = statements.charge(link, quotas.len()).await?;
            let part = Part::of_one(row, quotas);
            let call = call(Arc::clone(&link.client), statement, part.arguments());
            if let Ok(outcomes) = link
                .call(async { Ok(call.await) })
                .await?
                .map_err(|error| End::Closed(Some(error)))?
            {
                mine = outcomes.values().any(|outcome| outcome.admitted != 0);
            }
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

impl InFlight {
    fn put(&self, parts: Vec<Part>) {
        *lock(&self.0) = parts;
    }

    fn take(&self) -> Vec<Part> {
        mem::take(&mut lock(&self.0))
    }

    fn fail(&self, error: &EngineError) {
        self.take().into_iter().for_each(|part| part.fail(error));
    }
}

impl Statements {
    /// The statement for so many quotas, or why there is none.
    async fn charge(&mut self, link: &mut Link, quotas: usize) -> Result<Result<Statement, DriverError>, End> {
        prepared(&mut self.charge[quotas - 1], link, || sql::charge(quotas)).await
    }

    async fn sweep(&mut self, link: &mut Link) -> Result<Result<Statement, DriverError>, End> {
        prepared(&mut self.sweep, link, sql::sweep).await
    }
}

async fn prepared(
    place: &mut Option<Statement>,
    link: &mut Link,
    text: impl FnOnce() -> String,
) -> Result<Result<Statement, DriverError>, End> {
    if let Some(statement) = place {
        return Ok(Ok(statement.clone()));
    }
    let text = &text();
    let made = link
        .ask_or_refuse(|client| async move { client.prepare(text).await })
        .await?;
    Ok(made.inspect(|statement| *place = Some(statement.clone())))
}

/// Runs a statement that was prepared.
async fn call(
    client: Arc<tokio_postgres::Client>,
    statement: Result<Statement, DriverError>,
    arguments: Arguments,
) -> Result<HashMap<(i64, i64), Outcome>, DriverError> {
    let arguments: Vec<&(dyn ToSql + Sync)> = arguments.iter().map(|array| array as _).collect();
    let rows = client.query(&statement?, &arguments).await?;
    rows.iter().map(outcome).collect()
}

fn outcome(row: &Row) -> Result<((i64, i64), Outcome), DriverError> {
    let now: i64 = row.try_get(3)?;
    let mut ahead = [0; MAX_QUOTAS];
    for (place, ahead) in ahead.iter_mut().enumerate().take(row.len() - 4) {
        let arrival: i64 = row.try_get(4 + place)?;
        *ahead = u64::try_from(arrival.saturating_sub(now)).unwrap_or_default();
    }
    let admitted = row.try_get(2)?;
    Ok(((row.try_get(0)?, row.try_get(1)?), Outcome { admitted, ahead }))
}

/// Words a refused statement, or says that the connection is of no use.
fn judge(error: DriverError) -> Result<EngineError, End> {
    match condition(&error) {
        // It was the primary once. The next connection looks for another.
        Some(Condition::ReadOnly | Condition::SessionEnded) | None => Err(End::Closed(Some(error))),
        Some(_) => Ok(StatementError::from_driver_of_tables(error).into_engine()),
    }
}

fn silent(limit: Duration) -> EngineError {
    StatementError::Silent { limit }.into_engine()
}
