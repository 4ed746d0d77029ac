//! The lock session: one connection on which a process takes and holds thousands of locks, and the one task that owns
//! it. It connects, carries batches, pings, and connects anew when the connection was lost.

use std::{
    error::Error,
    future::{Future, poll_fn},
    pin::{Pin, pin},
    sync::{
        Arc,
        atomic::{AtomicU64, AtomicUsize, Ordering},
    },
    task::Poll,
    time::Duration,
};

use latchwork_core::{
    Moment,
    engine::{AcquireRequest, EngineError, EngineErrorKind, Grant},
};
use tokio::time::{Instant, Sleep, sleep, timeout};
use tracing::warn;

use crate::{
    backoff::{Backoff, GOOD_AFTER},
    connect::{ConnectError, Connected},
    error::{StatementError, connection_lost},
    in_flight::{InFlight, Load},
    inbox::{Ask, Inbox, Inquiry, Parked, Wake, Work},
    incumbent,
    link::{End, Link, key_of_row},
    markers,
    shared::{Availability, Shared},
    sql,
    statements::Statements,
    wait::Wait,
};

/// Added to the number of pending requests of a session that takes no more.
const RETIRED: usize = usize::MAX / 2;

/// What others see of a lock session.
#[derive(Debug)]
pub(crate) struct LockSession {
    pub(crate) inbox: Inbox,
    /// Tries that have been sent here and not been answered, and requests on their way here.
    pending: AtomicUsize,
    /// Locks that are held here.
    held: AtomicUsize,
    /// The number of the connection that is up now.
    current: AtomicU64,
    /// When what is on the wire now was sent, or 0.
    unanswered_since: Arc<AtomicU64>,
    /// The first session of the engine: it is always there, and tells whether the server can be asked.
    primary: bool,
}

/// Why a connection is waited on.
enum Event {
    Wake(Wake),
    PingDue,
}

impl LockSession {
    pub(crate) fn new(primary: bool) -> Self {
        Self {
            inbox: Inbox::default(),
            pending: AtomicUsize::new(0),
            held: AtomicUsize::new(0),
            current: AtomicU64::new(0),
            unanswered_since: Arc::default(),
            primary,
        }
    }

    /// Keeps the session from being taken out while a request is on its way to it. Fails if it was taken out before.
    pub(crate) fn claim(&self) -> bool {
        let claimed = self.pending.fetch_add(1, Ordering::AcqRel) < RETIRED;
        if !claimed {
            self.unclaim(1);
        }
        claimed
    }

    /// Gives claims back.
    pub(crate) fn unclaim(&self, claims: usize) {
        self.pending.fetch_sub(claims, Ordering::AcqRel);
    }

    /// Takes a try that is to be answered after one attempt, for which the session was claimed.
    pub(crate) fn ask_once(&self, request: AcquireRequest) {
        self.inbox.push(|work| work.asks.push(Ask::Once(request)));
    }

    /// How many locks are held here, or may soon be.
    pub(crate) fn load(&self) -> usize {
        self.pending
            .load(Ordering::Relaxed)
            .saturating_add(self.held.load(Ordering::Relaxed))
    }

    /// Takes the session out, if nothing is here or on its way here.
    fn retire(&self, shared: &Shared) -> bool {
        if self
            .pending
            .compare_exchange(0, RETIRED, Ordering::AcqRel, Ordering::Relaxed)
            .is_err()
        {
            return false;
        }
        if !self.inbox.is_empty() {
            self.pending.fetch_sub(RETIRED, Ordering::AcqRel);
            return false;
        }
        shared.forget(self);
        self.inbox.close();
        true
    }

    /// Whether this is where the session with that number lives.
    pub(crate) fn is(&self, session: u64) -> bool {
        self.current.load(Ordering::Acquire) == session
    }

    /// For how long the server has not answered what was sent on this session.
    pub(crate) fn unanswered_for(&self, now: Moment) -> Duration {
        match self.unanswered_since.load(Ordering::Relaxed) {
            0 => Duration::ZERO,
            since => Duration::from_nanos(now.as_nanos().saturating_sub(since)),
        }
    }

    /// Owns the session until the engine closes.
    pub(crate) async fn run(self: Arc<Self>, shared: Arc<Shared>, mut first: Option<Connected>) {
        let mut backoff = Backoff::default();
        while !self.inbox.is_closing() {
            let connected = match first.take() {
                Some(connected) => Ok(connected),
                None => self.connect(&shared).await,
            };
            match connected {
                Ok(connected) => {
                    let begun = shared.clock.now();
                    self.serve(&shared, shared.link(connected, shared.on_silence(self.primary)))
                        .await;
                    if shared.clock.now().since(begun) >= GOOD_AFTER {
                        backoff.reset();
                        continue;
                    }
                }
                Err(error) if self.primary => {
                    let permanent = error.is_permanent();
                    let error = shared.connect_failed(error);
                    self.fail(permanent, &error);
                }
                Err(error) => return self.give_up(&shared, &error).await,
            }
            self.pause(backoff.next()).await;
        }
        self.inbox.end();
        self.fail(true, &EngineError::new(EngineErrorKind::Closed));
    }

    /// Connects. Those who wait for one attempt are not kept waiting for longer than an answer may take.
    async fn connect(&self, shared: &Arc<Shared>) -> Result<Connected, ConnectError> {
        let mut connecting = pin!(shared.connect());
        let limit = shared.options.timing.ping_limit();
        match timeout(limit, connecting.as_mut()).await {
            Ok(connected) => connected,
            Err(_) if self.primary => {
                shared.on_silence(true)(limit);
                connecting.await
            }
            // The first session is there meanwhile, and says how the server is.
            Err(_) => Err(ConnectError::TimedOut {
                server: "the server".to_owned(),
                limit,
            }),
        }
    }

    /// Hands everything to the first session: more locks than there should be on one are better than none.
    async fn give_up(&self, shared: &Arc<Shared>, error: &ConnectError) {
        warn!(target: "latchwork::postgres", error = error as &dyn Error, "cannot open a further session for locks");
        self.pending.fetch_add(RETIRED, Ordering::AcqRel);
        shared.pause_further_sessions();
        shared.forget(self);
        let primary = shared.primary();
        loop {
            // Once nobody is on his way here any more, nothing comes after what is taken.
            let last = self.pending.load(Ordering::Acquire) == RETIRED;
            let left = self.inbox.take_all();
            self.unclaim(left.tries());
            primary.pending.fetch_add(left.tries(), Ordering::AcqRel);
            primary.inbox.push(|work| work.append(left));
            if last {
                return;
            }
            tokio::task::yield_now().await;
        }
    }

    /// Answers what does not outlive an outage; with `all`, everything.
    fn fail(&self, all: bool, error: &EngineError) {
        let failed = self.inbox.take_failed(all);
        self.unclaim(failed.tries());
        failed.fail(error);
    }

    /// Waits before the next attempt to connect, or until the engine closes.
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
    async fn serve(&self, shared: &Arc<Shared>, mut link: Link) {
        let health = Arc::clone(&link.health);
        self.current.store(health.id(), Ordering::Release);
        link.unanswered_since = Arc::clone(&self.unanswered_since);
        let end = self.work(shared, &mut link).await;
        let held = link.held;
        self.unanswered_since.store(0, Ordering::Relaxed);
        if self.primary && !matches!(end, End::Asked) {
            shared.set_availability(Availability::Doubtful(connection_lost(&end.to_string())));
        }
        self.held.store(0, Ordering::Relaxed);
        self.current.store(0, Ordering::Release);
        self.inbox.wire_ended();
        // The gate learns of the loss before the server lets go of the locks that are left.
        shared.session_lost(&health, held, &end);
        // Releases that came while it ended come too late; else they would hear of it only from the next connection.
        self.inbox
            .take_releases()
            .into_iter()
            .for_each(|release| release.reply.send(Ok(false)));
        if matches!(end, End::Asked) {
            link.close().await;
        }
    }

    async fn work(&self, shared: &Arc<Shared>, link: &mut Link) -> End {
        let mut statements = Statements::default();
        let begun = async {
            statements.prepare_common(link).await?;
            link.settle().await
        };
        let mut done = begun.await.map(|()| None);
        loop {
            let in_flight = match done {
                Ok(in_flight) => in_flight,
                Err(end) => return end,
            };
            if self.primary && !shared.is_up() {
                shared.set_availability(Availability::Up);
            }
            if let Some(batch) = in_flight {
                done = self.carry(shared, link, &mut statements, batch).await;
                continue;
            }
            let event = self.next_event(shared, link).await;
            done = match event {
                Ok(Event::Wake(Wake::Work(work))) => self.send(shared, link, &mut statements, work).await.map(Some),
                Ok(Event::Wake(Wake::Close)) => Err(End::Asked),
                Ok(Event::PingDue) if !self.primary && link.held == 0 && self.retire(shared) => Err(End::Asked),
                Ok(Event::PingDue) => {
                    let ping = async {
                        link.ping().await?;
                        link.settle().await
                    };
                    ping.await.map(|()| None)
                }
                Err(end) => Err(end),
            };
        }
    }

    async fn next_event(&self, shared: &Shared, link: &mut Link) -> Result<Event, End> {
        let ping_due = link.ping_due();
        let mut timer: Option<Pin<Box<Sleep>>> = None;
        link.idle(|now, context| {
            let mut now = now;
            loop {
                let (wake, due) = self.inbox.poll_work(now, context);
                if let Poll::Ready(wake) = wake {
                    return Poll::Ready(Event::Wake(wake));
                }
                if ping_due <= now {
                    return Poll::Ready(Event::PingDue);
                }
                if due == Moment::NEVER {
                    return Poll::Pending;
                }
                now = shared.clock.now();
                let pause = due.since(now);
                let timer = timer.get_or_insert_with(|| Box::pin(sleep(pause)));
                timer.as_mut().reset(Instant::now() + pause);
                if timer.as_mut().poll(context).is_pending() {
                    return Poll::Pending;
                }
            }
        })
        .await
    }

    /// Sends a batch.
    async fn send(
        &self,
        shared: &Shared,
        link: &mut Link,
        statements: &mut Statements,
        work: Work,
    ) -> Result<InFlight, End> {
        let sent = InFlight::send(work, &self.inbox, link, statements, &shared.room).await;
        sent.map_err(|(end, tries)| {
            self.unclaim(tries);
            end
        })
    }

    /// Waits for a batch, sends what has collected meanwhile, and hands the answers out. Returns what it has sent.
    async fn carry(
        &self,
        shared: &Arc<Shared>,
        link: &mut Link,
        statements: &mut Statements,
        batch: InFlight,
    ) -> Result<Option<InFlight>, End> {
        let arrived = batch.arrive(link, shared.options.timing, &shared.room).await;
        let Load {
            batch,
            tries,
            probes,
            inquiries,
        } = arrived.map_err(|(end, tries)| {
            self.unclaim(tries);
            end
        })?;
        self.inbox.batch_arrived();
        let session = Arc::clone(&link.health);
        let grant = if self.primary {
            Grant::new(session)
        } else {
            Grant::unordered(session)
        };
        self.held.store(link.held, Ordering::Relaxed);
        self.unclaim(tries);
        // The server is at the next batch while the answers to this one are handed out. If that ends, this one's
        // answers are true all the same, and their guards lost.
        let next = if probes.is_empty() && inquiries.is_empty() {
            match self.inbox.take_due(&shared.clock) {
                Some(work) => Some(self.send(shared, link, statements, work).await),
                None => None,
            }
        } else {
            None
        };
        let rest = batch.answer(&grant, &shared.room);
        if !rest.releases.is_empty() {
            self.inbox.push(|work| work.releases.extend(rest.releases));
        }
        for wait in rest.waits {
            self.go_on_waiting(shared, wait);
        }
        self.probe(link, probes).await?;
        for inquiry in inquiries {
            match inquiry {
                Inquiry::Announce(request) => markers::announce(shared, link, request).await?,
                Inquiry::Incumbent(request) => incumbent::find(link, request).await?,
            }
        }
        next.transpose()
    }

    /// Puts a wait into the server's queue if a waiter session is free, else aside until the next poll.
    pub(crate) fn go_on_waiting(&self, shared: &Arc<Shared>, wait: Wait) {
        let wait = if wait.may_queue() {
            shared.waiters.assign(shared, wait)
        } else {
            Some(wait)
        };
        if let Some(wait) = wait {
            self.inbox.park(shared.next_poll(), Parked::Wait(wait));
        }
    }

    /// Finds out for keys that we hold shared whether anybody queues for them. One read of `pg_locks` serves them all.
    async fn probe(&self, link: &mut Link, probes: Vec<AcquireRequest>) -> Result<(), End> {
        if probes.is_empty() {
            return Ok(());
        }
        let asked = link
            .ask_or_refuse(|client| async move { client.query(sql::WAITED_FOR, &[]).await })
            .await?;
        link.settle().await?;
        let rows = match asked {
            Ok(rows) => rows,
            // A server whose lock table is full refuses this too, which is no reason to end the session.
            Err(error) => {
                let error = StatementError::from_driver(error).into_engine();
                probes
                    .into_iter()
                    .for_each(|probe| probe.reply.send(Err(error.clone())));
                return Ok(());
            }
        };
        for probe in probes {
            let waited_for = rows.iter().filter_map(key_of_row).any(|key| key == probe.key);
            probe
                .reply
                .send(Ok((!waited_for).then(|| Grant::new(Arc::clone(&link.health)))));
        }
        Ok(())
    }
}
