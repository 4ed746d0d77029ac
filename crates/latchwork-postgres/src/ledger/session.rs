//! The task that owns the ledger's session.

use std::{
    collections::VecDeque,
    sync::Arc,
    time::{Duration, SystemTime},
};

use latchwork_core::{
    Key,
    engine::{ClaimRequest, EngineError, LedgerRequest, ReadRequest, RecordRequest},
    once::{LastRun, RunEnd, TickAnswer},
};
use tokio::{sync::mpsc::UnboundedReceiver, time::timeout};
use tokio_postgres::{Error as DriverError, Row, types::Type};

use crate::{
    connect::Connected,
    error::{StatementError, connection_lost, silent, unreachable},
    link::{End, Link},
    shared::Shared,
    sql,
    sqlstate::{Condition, condition},
    transaction::first_text,
};

/// How long a session is kept that nobody asks anything.
const KEEP_IDLE: Duration = Duration::from_secs(30);

pub(super) struct LedgerSession {
    shared: Arc<Shared>,
    requests: UnboundedReceiver<LedgerRequest>,
}

impl LedgerSession {
    pub(super) const fn new(shared: Arc<Shared>, requests: UnboundedReceiver<LedgerRequest>) -> Self {
        Self { shared, requests }
    }

    /// Connects, and answers whatever comes, until nobody asks any more.
    pub(super) async fn run(mut self) {
        let error = match self.connect().await {
            Ok(connected) => {
                // No lock rests on this session, and others speak for the server.
                let mut link = self.shared.link(connected, Arc::new(|_| {}));
                let end = self.serve(&mut link).await;
                let error = connection_lost(&end.to_string());
                if matches!(end, End::Asked) {
                    link.close().await;
                }
                error
            }
            Err(error) => error,
        };
        // What was sent while this ended must be answered.
        self.requests.close();
        while let Ok(request) = self.requests.try_recv() {
            request.fail(error.clone());
        }
    }

    /// Nobody is kept waiting for a connection for longer than for an answer.
    async fn connect(&self) -> Result<Connected, EngineError> {
        let limit = self.limit();
        match timeout(limit, self.shared.connect()).await {
            Ok(connected) => connected.map_err(unreachable),
            Err(_) => Err(silent(limit)),
        }
    }

    fn limit(&self) -> Duration {
        self.shared.options.timing.ping_limit()
    }

    async fn serve(&mut self, link: &mut Link) -> End {
        match self.answer_all(link).await {
            Ok(()) => End::Asked,
            Err(end) => end,
        }
    }

    async fn answer_all(&mut self, link: &mut Link) -> Result<(), End> {
        link.end_what_is_held_up(self.limit()).await?;
        while let Some(request) = self.next_request(link).await? {
            self.answer_in_time(link, request).await?;
        }
        // Whoever asks from now on opens another session; who has asked until now is answered here.
        self.requests.close();
        let mut left: VecDeque<_> = std::iter::from_fn(|| self.requests.try_recv().ok()).collect();
        while let Some(request) = left.pop_front() {
            if let Err(end) = self.answer_in_time(link, request).await {
                let error = connection_lost(&end.to_string());
                left.into_iter().for_each(|request| request.fail(error.clone()));
                return Err(end);
            }
        }
        Ok(())
    }

    /// The next request; `None` if nobody asks any more. Pings meanwhile.
    async fn next_request(&mut self, link: &mut Link) -> Result<Option<LedgerRequest>, End> {
        let leave = self.shared.clock.now().after(KEEP_IDLE);
        loop {
            match link
                .idle_until(leave, |context| self.requests.poll_recv(context))
                .await?
            {
                Some(request) => return Ok(request),
                None if self.shared.clock.now() >= leave => return Ok(None),
                None => {}
            }
        }
    }

    /// A server that is there ends what is held up itself, unless it is the commit.
    async fn answer_in_time(&self, link: &mut Link, request: LedgerRequest) -> Result<(), End> {
        let answered = timeout(2 * self.limit(), self.answer(link, request)).await;
        answered.unwrap_or(Err(End::Silent))
    }

    async fn answer(&self, link: &mut Link, request: LedgerRequest) -> Result<(), End> {
        match request {
            LedgerRequest::Claim(request) => self.claim(link, request).await,
            LedgerRequest::Record(request) => self.record(link, request).await,
            LedgerRequest::Read(request) => self.read(link, request).await,
            // A request that is dropped is answered.
            _ => Ok(()),
        }
    }

    async fn claim(&self, link: &mut Link, request: ClaimRequest) -> Result<(), End> {
        let ClaimRequest { claim, reply, .. } = request;
        let claim = claim.claimed_by(self.shared.identity.to_string());
        let answer = self.ask(link, claim.statement()).await?;
        let unreadable = End::Inconsistent("it does not answer what the ledger is asked");
        reply.send(match answer {
            Ok(answer) => Ok::<TickAnswer, _>(claim.read(&answer.unwrap_or_default()).ok_or(unreadable)?),
            Err(error) => Err(error),
        });
        Ok(())
    }

    async fn record(&self, link: &mut Link, request: RecordRequest) -> Result<(), End> {
        let answer = self.ask(link, request.statement()).await?;
        request.reply.send(answer.map(|answer| answer.is_some()));
        Ok(())
    }

    /// Sends a statement, and returns the one text that it answers with.
    async fn ask(&self, link: &mut Link, statement: String) -> Result<Result<Option<String>, EngineError>, End> {
        let client = Arc::clone(&link.client);
        let answer = link.call(async move { client.simple_query(&statement).await }).await?;
        answer
            .map(|messages| Ok(first_text(&messages)))
            .or_else(|error| self.judge(error).map(Err))
    }

    async fn read(&self, link: &mut Link, request: ReadRequest) -> Result<(), End> {
        let (client, key) = (Arc::clone(&link.client), request.key);
        let key: i64 = ledger_key(key);
        let answer = link
            .call(async move { client.query_typed(sql::LAST_RUN, &[(&key, Type::INT8)]).await })
            .await?;
        let run = match answer {
            Ok(rows) => Ok(rows.first().map(last_run)),
            Err(error) => Err(self.judge(error)?),
        };
        request.reply.send(run);
        Ok(())
    }

    /// Words a refused statement, or says that the connection is of no use.
    fn judge(&self, error: DriverError) -> Result<EngineError, End> {
        match condition(&error) {
            // It was the primary once. The next connection looks for another.
            Some(Condition::ReadOnly | Condition::SessionEnded) | None => Err(End::Closed(Some(error))),
            // The server has ended what was held up.
            Some(Condition::Cancelled) => Ok(silent(self.limit())),
            Some(_) => Ok(StatementError::from_driver_of_tables(error).into_engine()),
        }
    }
}

/// Keys of the ledger are of the 64-bit space.
fn ledger_key(key: Key) -> i64 {
    key.as_bigint().unwrap_or_default()
}

fn last_run(row: &Row) -> LastRun {
    let began_at: SystemTime = row.get(3);
    let mut run = LastRun::new(row.get(0), row.get(1), row.get(2), began_at);
    run.ended_at = row.get(4);
    run.end = row.get::<_, Option<&str>>(5).and_then(RunEnd::parse);
    run
}
