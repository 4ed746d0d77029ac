//! One connection of ours, the trust in it, and the time limits on its answers. Its owner is one task, which polls the
//! wire itself: nothing else ever speaks on the connection.

use std::{
    fmt,
    future::{Future, poll_fn},
    ops::Deref,
    pin::{Pin, pin},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    task::{Context, Poll},
    time::Duration,
};

use latchwork_core::{Clock, Key, Mode, Moment, SessionHealth};
use tokio::time::{Instant, Sleep, sleep};
use tokio_postgres::{Client, Error as DriverError, Row, SimpleQueryMessage};

use crate::{
    connect::{Canceller, Connected, Wire},
    options::Timing,
    quiet_waker::QuietWaker,
    sql,
    sqlstate::is_cancelled,
};

/// How a connection ended.
#[derive(Debug)]
pub(crate) enum End {
    /// The server, or something on the way, closed it.
    Closed(Option<DriverError>),
    /// No answer for as long as the server keeps a silent session.
    Silent,
    /// The server's view of the session differs from ours.
    Inconsistent(&'static str),
    /// We have closed it.
    Asked,
}

impl fmt::Display for End {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Closed(Some(error)) => match error.as_db_error() {
                Some(said) => write!(f, "the server ended it: {}", said.message()),
                None => write!(f, "the connection broke: {error}"),
            },
            Self::Closed(None) => f.write_str("the server closed the connection"),
            Self::Silent => f.write_str("the server did not answer for too long"),
            Self::Inconsistent(how) => write!(f, "the session is not what we think it is: {how}"),
            Self::Asked => f.write_str("it was closed"),
        }
    }
}

/// How many times a ping interval, or limit, is looked at: how late either may be noticed.
const TICKS: u32 = 16;

/// What to do when an answer is overdue.
pub(crate) type OnSilence = Arc<dyn Fn(Duration) + Send + Sync>;

/// A connection with its health.
pub(crate) struct Link {
    pub(crate) client: Arc<Client>,
    pub(crate) canceller: Canceller,
    /// Before the wire, so that it is lost before that is closed.
    pub(crate) health: Health,
    /// How many advisory locks the session holds, by our count.
    pub(crate) held: usize,
    wire: Wire,
    timing: Timing,
    on_silence: OnSilence,
    ticker: Pin<Box<Sleep>>,
    waker: Arc<QuietWaker>,
    tick: Duration,
    last_sent: Moment,
    /// When what is unanswered was sent, or 0, for those who look on.
    pub(crate) unanswered_since: Arc<AtomicU64>,
    trusted_until: Moment,
    /// The trust has lapsed: what the session holds must be confirmed before it is trusted again.
    doubtful: bool,
}

impl Link {
    /// Takes a fresh connection over. It is trusted from the first [`Link::settle`] on.
    pub(crate) fn new(connected: Connected, id: u64, clock: Clock, timing: Timing, on_silence: OnSilence) -> Self {
        let Connected {
            client,
            wire,
            canceller,
            ..
        } = connected;
        let now = clock.now();
        let tick = (timing.ping_interval().min(timing.ping_limit()) / TICKS).max(Duration::from_millis(1));
        Self {
            ticker: Box::pin(sleep(tick)),
            waker: Arc::new(QuietWaker::new()),
            tick,
            client: Arc::new(client),
            canceller,
            health: Health(Arc::new(SessionHealth::new(id, clock, now))),
            held: 0,
            wire,
            timing,
            on_silence,
            last_sent: now,
            unanswered_since: Arc::default(),
            trusted_until: now,
            doubtful: true,
        }
    }

    /// When a ping is due if nothing else is said until then.
    pub(crate) fn ping_due(&self) -> Moment {
        self.last_sent.after(self.timing.ping_interval())
    }

    /// Runs a statement whose answer should be there within the ping limit.
    pub(crate) async fn call<T>(
        &mut self,
        statement: impl Future<Output = Result<T, DriverError>>,
    ) -> Result<Result<T, DriverError>, End> {
        self.call_within(self.timing.ping_limit(), statement).await
    }

    /// Runs a statement. The outer error is the end of the connection; the inner one is the server's.
    ///
    /// When the answer is not there within `limit` the session is suspended; when there is none for as long as the
    /// server keeps a silent session, the connection is given up.
    pub(crate) async fn call_within<T>(
        &mut self,
        limit: Duration,
        statement: impl Future<Output = Result<T, DriverError>>,
    ) -> Result<Result<T, DriverError>, End> {
        let sent = self.health.clock().now();
        self.answer_to(sent, limit, statement).await
    }

    /// Sends a statement without waiting for its answer. It is [`Link::answer_to`] that brings it.
    pub(crate) async fn send(&mut self, mut statement: Pin<&mut impl Future<Output = ()>>) -> Result<Moment, End> {
        let sent = self.health.clock().now();
        self.poll_quietly(|link, context| {
            // The future keeps its answer, should it have one already.
            let _ = statement.as_mut().poll(context);
            match link.poll_wire(context) {
                Poll::Ready(end) => Poll::Ready(Err(End::Closed(end))),
                Poll::Pending => Poll::Ready(Ok(sent)),
            }
        })
        .await
    }

    /// As [`Link::call_within`], for a statement that [`Link::send`] has sent.
    pub(crate) async fn answer_to<T>(
        &mut self,
        sent: Moment,
        limit: Duration,
        statement: impl Future<Output = Result<T, DriverError>>,
    ) -> Result<Result<T, DriverError>, End> {
        let mut statement = pin!(statement);
        let mut patience = sent.after(limit);
        let mut overdue = false;
        self.unanswered_since.store(sent.as_nanos(), Ordering::Relaxed);
        let answer = self
            .poll_quietly(|link, context| {
                if let Poll::Ready(answer) = link.poll_both(statement.as_mut(), context) {
                    return Poll::Ready(answer);
                }
                while link.poll_clock(context) >= patience {
                    if overdue {
                        return Poll::Ready(Err(End::Silent));
                    }
                    overdue = true;
                    link.doubtful = true;
                    link.health.suspend();
                    (link.on_silence)(limit);
                    patience = patience.after(link.timing.silence().saturating_sub(link.timing.trust()));
                }
                Poll::Pending
            })
            .await?;
        self.unanswered_since.store(0, Ordering::Relaxed);
        self.last_sent = sent;
        if self.health.clock().now() >= self.trusted_until {
            self.doubtful = true;
        }
        if !self.doubtful {
            self.trust_from(sent);
        }
        Ok(answer)
    }

    /// Runs a statement that changes nothing, and again for as long as somebody cancels it. Any other error of the
    /// server ends the session.
    pub(crate) async fn ask<T, F>(&mut self, statement: impl Fn(Arc<Client>) -> F) -> Result<T, End>
    where
        F: Future<Output = Result<T, DriverError>>,
    {
        self.ask_or_refuse(statement)
            .await?
            .map_err(|error| End::Closed(Some(error)))
    }

    /// As [`Link::ask`], where an error of the server is an answer like others.
    pub(crate) async fn ask_or_refuse<T, F>(
        &mut self,
        statement: impl Fn(Arc<Client>) -> F,
    ) -> Result<Result<T, DriverError>, End>
    where
        F: Future<Output = Result<T, DriverError>>,
    {
        loop {
            match self.call(statement(Arc::clone(&self.client))).await? {
                Err(error) if is_cancelled(&error) => {}
                Err(error) if error.as_db_error().is_none() => return Err(End::Closed(Some(error))),
                answer => return Ok(answer),
            }
        }
    }

    /// Waits until something is to be done, or the connection ends. What the server says meanwhile is passed over.
    pub(crate) async fn idle<T>(
        &mut self,
        mut work: impl FnMut(Moment, &mut Context<'_>) -> Poll<T>,
    ) -> Result<T, End> {
        self.poll_quietly(|link, context| {
            if let Poll::Ready(end) = link.poll_wire(context) {
                return Poll::Ready(Err(End::Closed(end)));
            }
            let now = link.poll_clock(context);
            work(now, context).map(Ok)
        })
        .await
    }

    /// As [`Link::idle`], up to a moment, and up to the next ping at most, which is sent then: `None` after either.
    pub(crate) async fn idle_until<T>(
        &mut self,
        until: Moment,
        mut work: impl FnMut(&mut Context<'_>) -> Poll<T>,
    ) -> Result<Option<T>, End> {
        let now = self.health.clock().now();
        let mut timer = pin!(sleep(self.ping_due().min(until).since(now)));
        let done = self
            .idle(|_, context| match work(context) {
                Poll::Ready(done) => Poll::Ready(Some(done)),
                Poll::Pending => timer.as_mut().poll(context).map(|()| None),
            })
            .await?;
        if done.is_none() {
            self.ping_if_due().await?;
            self.settle().await?;
        }
        Ok(done)
    }

    /// Has the server end each statement that is held up for so long, as by what somebody has locked. For a session that
    /// holds no locks.
    pub(crate) async fn end_what_is_held_up(&mut self, limit: Duration) -> Result<(), End> {
        let set = sql::end_what_is_held_up(limit);
        self.ask(|client| {
            let set = set.clone();
            async move { client.batch_execute(&set).await }
        })
        .await
    }

    /// Confirms what the session holds, where the trust in it has lapsed. To be called when the answers of a batch are
    /// counted, and before they are handed on.
    pub(crate) async fn settle(&mut self) -> Result<(), End> {
        // A confirmation may be as slow as what it was to confirm; then the next one may be quicker.
        while self.doubtful {
            let sent = self.health.clock().now();
            if self.held == 0 {
                self.ping().await?;
            } else if self.own_locks().await?.len() != self.held {
                return Err(End::Inconsistent("it does not hold the locks that it was granted"));
            }
            if self.health.clock().now().since(sent) < self.timing.trust() {
                self.doubtful = false;
                self.trust_from(sent);
            }
        }
        Ok(())
    }

    /// Hears whether the server is there.
    pub(crate) async fn ping(&mut self) -> Result<(), End> {
        let client = Arc::clone(&self.client);
        // An error of the server is an answer too.
        self.call(async move { client.batch_execute(sql::PING).await })
            .await
            .map(drop)
    }

    /// Pings if nothing has been said for a ping interval.
    pub(crate) async fn ping_if_due(&mut self) -> Result<(), End> {
        if self.ping_due() <= self.health.clock().now() {
            self.ping().await?;
        }
        Ok(())
    }

    /// The advisory locks that the server says this session holds.
    pub(crate) async fn own_locks(&mut self) -> Result<Vec<(Key, Mode)>, End> {
        let rows = self
            .ask(|client| async move { client.query(sql::OWN_LOCKS, &[]).await })
            .await?;
        Ok(rows.iter().filter_map(own_lock).collect())
    }

    /// Releases a key, and returns whether it was held. An unlock that is cancelled may have happened all the same.
    pub(crate) async fn unlock(&mut self, key: Key, mode: Mode) -> Result<bool, End> {
        loop {
            let (client, unlock) = (Arc::clone(&self.client), sql::unlock(key, mode));
            match self.call(async move { client.simple_query(&unlock).await }).await? {
                Ok(rows) => return Ok(is_true(&rows)),
                Err(error) if !is_cancelled(&error) => return Err(End::Closed(Some(error))),
                Err(_) if !self.own_locks().await?.contains(&(key, mode)) => return Ok(true),
                Err(_) => {}
            }
        }
    }

    /// Ends the session, taking leave of the server.
    pub(crate) async fn close(self) {
        let Self {
            client,
            mut wire,
            timing,
            ..
        } = self;
        drop(client);
        // If the server does not react, dropping the socket ends the session too.
        let _ = tokio::time::timeout(timing.ping_limit(), wire.finish()).await;
    }

    /// The present moment; the task is woken again within a tick. One timer ticks for all limits: to set one for each
    /// statement would wake the thread that waits for the network each time.
    pub(crate) fn poll_clock(&mut self, context: &mut Context<'_>) -> Moment {
        while self.ticker.as_mut().poll(context).is_ready() {
            self.ticker.as_mut().reset(Instant::now() + self.tick);
        }
        self.health.clock().now()
    }

    /// Awaits what is polled, without waking this task for what it does itself.
    async fn poll_quietly<T>(&mut self, mut poll: impl FnMut(&mut Self, &mut Context<'_>) -> Poll<T>) -> T {
        let waker = Arc::clone(&self.waker);
        poll_fn(|context| waker.poll(context, |context| poll(self, context))).await
    }

    fn trust_from(&mut self, sent: Moment) {
        self.trusted_until = sent.after(self.timing.trust());
        self.health.trust_until(self.trusted_until);
    }

    fn poll_both<T>(
        &mut self,
        statement: Pin<&mut impl Future<Output = Result<T, DriverError>>>,
        context: &mut Context<'_>,
    ) -> Poll<Result<Result<T, DriverError>, End>> {
        // First the wire, which may bring the answer. If the statement has something to send, that wakes the wire.
        let end = match self.poll_wire(context) {
            Poll::Ready(end) => Some(end),
            Poll::Pending => None,
        };
        match (statement.poll(context), end) {
            (Poll::Ready(Err(error)), end) if error.is_closed() => {
                Poll::Ready(Err(End::Closed(end.flatten().or(Some(error)))))
            }
            (Poll::Ready(answer), _) => Poll::Ready(Ok(answer)),
            (Poll::Pending, Some(end)) => Poll::Ready(Err(End::Closed(end))),
            (Poll::Pending, None) => Poll::Pending,
        }
    }

    /// Moves bytes; ready only with the end of the connection.
    fn poll_wire(&mut self, context: &mut Context<'_>) -> Poll<Option<DriverError>> {
        loop {
            match self.wire.poll_message(context) {
                Poll::Ready(Some(Ok(_))) => {}
                Poll::Ready(Some(Err(error))) => return Poll::Ready(Some(error)),
                Poll::Ready(None) => return Poll::Ready(None),
                Poll::Pending => return Poll::Pending,
            }
        }
    }
}

/// The health of a session that ends with its link: midway, if the runtime of its task ends. Whoever lives on elsewhere must
/// not believe in its locks any more then.
#[derive(Debug)]
pub(crate) struct Health(Arc<SessionHealth>);

impl Deref for Health {
    type Target = Arc<SessionHealth>;

    fn deref(&self) -> &Self::Target {
        &self.0
    }
}

impl Drop for Health {
    fn drop(&mut self) {
        self.0.lose();
    }
}

impl fmt::Debug for Link {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Link")
            .field("health", &self.health)
            .field("held", &self.held)
            .finish_non_exhaustive()
    }
}

/// Whether the last row of a simple query says true.
pub(crate) fn is_true(messages: &[SimpleQueryMessage]) -> bool {
    let rows = messages.iter().filter_map(|message| match message {
        SimpleQueryMessage::Row(row) => Some(row.get(0) == Some("t")),
        _ => None,
    });
    rows.last().unwrap_or(false)
}

/// Reads a row of [`sql::OWN_LOCKS`].
fn own_lock(row: &Row) -> Option<(Key, Mode)> {
    let key = key_of_row(row)?;
    Some((key, if row.get(3) { Mode::Shared } else { Mode::Exclusive }))
}

/// Reads the three columns that `pg_locks` shows a key in.
pub(crate) fn key_of_row(row: &Row) -> Option<Key> {
    let subid: i16 = row.get(2);
    Key::from_pg_locks(row.get(0), row.get(1), u16::try_from(subid).ok()?)
}
