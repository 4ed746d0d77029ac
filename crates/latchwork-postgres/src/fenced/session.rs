//! One session for fenced locks. It holds one lock at a time, and the key of that grant.
//!
//! The order makes the fence: the lock is granted; the last holders' transactions have ended; the grant's own key is
//! taken; the guard is handed out. At the end the grant's key goes first. So whoever finds both keys on one session in one
//! look at the lock table knows that this very grant was in force at that moment, and that any later one drains after it.

use std::{
    future::{Future, pending},
    pin::pin,
    sync::Arc,
    task::Poll,
    time::{Duration, SystemTime},
};

use latchwork_core::{
    Mode, Moment,
    engine::{EngineError, EngineErrorKind, FencedGrant, FencedRelease, FencedRequest},
    fence::{Fence, Term},
};
use tokio::sync::mpsc;
use tokio_postgres::{SimpleQueryMessage, types::Type};

use super::Message;
use crate::{
    error::{StatementError, connection_lost, unreachable},
    identity::Granted,
    link::{End, Link},
    quiet_slice::{Slice, slice},
    shared::Shared,
    sql,
};

/// How long a session is kept that nobody has a lock on: to open another costs not only the connection but its age.
const KEEP_IDLE: Duration = Duration::from_secs(600);

pub(super) struct FencedSession {
    shared: Arc<Shared>,
    number: u64,
    messages: mpsc::UnboundedReceiver<Message>,
}

/// What comes of a step on the way to a grant.
enum Step {
    Done,
    /// Nobody wants the lock any more, or its time is up.
    Over,
    Failed(EngineError),
}

impl FencedSession {
    pub(super) const fn new(shared: Arc<Shared>, number: u64, messages: mpsc::UnboundedReceiver<Message>) -> Self {
        Self {
            shared,
            number,
            messages,
        }
    }

    /// Connects, and serves whoever comes, until nobody does any more.
    pub(super) async fn run(mut self) {
        let gone = match self.shared.connect().await {
            Ok(connected) => {
                // Other sessions speak for the server.
                let mut link = self.shared.link(connected, Arc::new(|_| {}));
                let opened = self.shared.clock.now();
                let health = Arc::clone(&link.health);
                let end = self.serve(&mut link, opened).await;
                self.shared.session_lost(&health, link.held, &end);
                let gone = connection_lost(&end.to_string());
                if matches!(end, End::Asked) {
                    link.close().await;
                }
                gone
            }
            Err(error) => unreachable(error),
        };
        self.shared.fenced.ended(self.number);
        // What was sent while this ended must be answered.
        self.messages.close();
        while let Ok(message) = self.messages.try_recv() {
            if let Message::Request(request) = message {
                request.reply.send(Err(gone.clone()));
            }
        }
    }

    async fn serve(&mut self, link: &mut Link, opened: Moment) -> End {
        let mut served = link.settle().await;
        while served.is_ok() {
            served = self.serve_one(link, opened).await;
        }
        served.err().unwrap_or(End::Asked)
    }

    async fn serve_one(&mut self, link: &mut Link, opened: Moment) -> Result<(), End> {
        let request = self.next_request(link).await?;
        self.grant_and_hold(link, opened, request).await
    }

    /// Serves one request, to the end of its hold.
    async fn grant_and_hold(&mut self, link: &mut Link, opened: Moment, mut request: FencedRequest) -> Result<(), End> {
        // The lock, and the grant's own key.
        let shared = Arc::clone(&self.shared);
        let (Some(lock), Some(own)) = (shared.room.reserve(), shared.room.reserve()) else {
            let held = shared.room.taken();
            let error = StatementError::TooManyHeld { held };
            self.shared.fenced.offer(self.number);
            request.reply.send(Err(error.into_engine()));
            return Ok(());
        };
        let fence = Fence::fresh(request.key, request.mode);
        match self.grant(link, opened, &mut request, fence).await {
            Ok(Ok(term)) => {
                lock.keep();
                own.keep();
                let (grant, release) = FencedGrant::new(Arc::clone(&link.health), fence, term);
                request.reply.send(Ok(Some(grant)));
                self.hold(link, fence, release).await
            }
            Ok(Err(step)) => {
                // The session is clean before whoever asked can ask again.
                let undone = self.undo(link).await;
                if undone.is_ok() {
                    self.shared.fenced.offer(self.number);
                }
                request.reply.send(match step {
                    Step::Failed(error) => Err(error),
                    Step::Over if self.shared.is_closing() => Err(EngineError::new(EngineErrorKind::Closed)),
                    Step::Done | Step::Over => Ok(None),
                });
                undone
            }
            Err(end) => {
                link.held = 0;
                request.reply.send(Err(connection_lost(&end.to_string())));
                Err(end)
            }
        }
    }

    /// Goes through the steps of a grant.
    async fn grant(
        &mut self,
        link: &mut Link,
        opened: Moment,
        request: &mut FencedRequest,
        fence: Fence,
    ) -> Result<Result<Term, Step>, End> {
        let old_enough = opened.after(self.shared.options.timing.trust());
        match self.wait_until(link, request, old_enough).await? {
            Step::Done => {}
            step => return Ok(Err(step)),
        }
        request.reply.prepares(false);
        match self.take_key(link, request).await? {
            Step::Done => {}
            step => return Ok(Err(step)),
        }
        let keys = fence.drained_keys();
        let drains = |limit| sql::drain_slice(&keys, limit);
        match self.wait_for(link, request, drains, keys.len() as u32).await? {
            Step::Done => {}
            step => return Ok(Err(step)),
        }
        self.take_own_key(link, fence).await?;
        let term = Self::term(link).await?;
        let granted = Granted::new(SystemTime::now(), term);
        Self::show_as(link, self.shared.identity.application_name_with(&granted)).await?;
        link.settle().await?;
        Ok(Ok(term))
    }

    /// Keeps the session alive until a moment.
    async fn wait_until(&mut self, link: &mut Link, request: &mut FencedRequest, until: Moment) -> Result<Step, End> {
        loop {
            let now = self.shared.clock.now();
            if now >= until {
                return Ok(Step::Done);
            }
            if self.is_over(request) || now >= request.until {
                return Ok(Step::Over);
            }
            let until = until.min(request.until);
            let mut abandoned = pin!(over(request, &mut self.messages));
            link.idle_until(until, |context| abandoned.as_mut().poll(context))
                .await?;
        }
    }

    /// Waits for the key. With a campaign delay it is let go again for so long, and then it is for whoever has it first.
    async fn take_key(&mut self, link: &mut Link, request: &mut FencedRequest) -> Result<Step, End> {
        let (key, mode, delay) = (request.key, request.mode, request.campaign_delay);
        let waits = |limit| sql::wait_slice(key, mode, limit);
        loop {
            match self.wait_for(link, request, waits, 1).await? {
                Step::Done => link.held = 1,
                step => return Ok(step),
            }
            if delay.is_zero() {
                return Ok(Step::Done);
            }
            self.undo(link).await?;
            let over = self.shared.clock.now().after(delay);
            match self.wait_until(link, request, over).await? {
                Step::Done => {}
                step => return Ok(step),
            }
            let patience = self.shared.options.timing.ping_limit();
            match slice(link, sql::try_once(key, mode), Duration::ZERO, patience, pending()).await? {
                Slice::Granted => {
                    link.held = 1;
                    return Ok(Step::Done);
                }
                Slice::NotGranted => {}
                Slice::Failed(error) => return Ok(Step::Failed(error)),
            }
        }
    }

    /// Waits in slices until a statement is granted what it waits for. `waits` is how often it may wait for a slice.
    async fn wait_for(
        &mut self,
        link: &mut Link,
        request: &mut FencedRequest,
        sql: impl Fn(Duration) -> String,
        waits: u32,
    ) -> Result<Step, End> {
        let timing = self.shared.options.timing;
        loop {
            let left = request.until.since(self.shared.clock.now());
            let length = Shared::jittered(self.shared.options.wait_slice).min(left);
            let patience = timing.ping_limit() + length * (waits - 1);
            match slice(link, sql(length), length, patience, over(request, &mut self.messages)).await? {
                Slice::Granted => return Ok(Step::Done),
                Slice::Failed(_) if self.is_over(request) => return Ok(Step::Over),
                Slice::Failed(error) => return Ok(Step::Failed(error)),
                Slice::NotGranted if self.is_over(request) || self.shared.clock.now() >= request.until => {
                    return Ok(Step::Over);
                }
                Slice::NotGranted => {}
            }
        }
    }

    fn is_over(&self, request: &FencedRequest) -> bool {
        request.reply.is_abandoned() || self.shared.is_closing()
    }

    /// Takes the grant's own key, which nobody ever had.
    async fn take_own_key(&self, link: &mut Link, fence: Fence) -> Result<(), End> {
        let sql = sql::wait_slice(fence.grant_key(), Mode::Exclusive, Duration::ZERO);
        let patience = self.shared.options.timing.ping_limit();
        match slice(link, sql, Duration::ZERO, patience, pending()).await? {
            Slice::Granted => {
                link.held = 2;
                Ok(())
            }
            Slice::NotGranted | Slice::Failed(_) => Err(End::Inconsistent("it was refused a key that nobody knows")),
        }
    }

    async fn term(link: &mut Link) -> Result<Term, End> {
        let rows = link
            .ask(|client| async move { client.simple_query(sql::TERM).await })
            .await?;
        let term = rows.iter().find_map(|message| match message {
            SimpleQueryMessage::Row(row) => {
                let timeline = u32::from_str_radix(row.get(0)?, 16).ok()?;
                Some(Term::new(timeline, row.get(1)?.parse().ok()?))
            }
            _ => None,
        });
        term.ok_or(End::Inconsistent("it has no number for its transactions"))
    }

    /// Shows the session to others under such a name.
    async fn show_as(link: &mut Link, name: String) -> Result<(), End> {
        let shown = link.ask(|client| {
            let name = name.clone();
            async move { client.query_typed(sql::SHOW_AS, &[(&name, Type::TEXT)]).await }
        });
        shown.await.map(drop)
    }

    /// Releases whatever a grant that was not handed out has left.
    async fn undo(&self, link: &mut Link) -> Result<(), End> {
        link.ask(|client| async move { client.batch_execute(sql::UNLOCK_ALL).await })
            .await?;
        link.held = 0;
        Ok(())
    }

    /// Holds the lock until it is given up.
    async fn hold(&mut self, link: &mut Link, fence: Fence, mut release: FencedRelease) -> Result<(), End> {
        let asks = self.until_given_up(link, &mut release).await?;
        let held = Self::release(link, fence).await;
        if matches!(held, Ok(true)) {
            self.shared.room.give_back(link.held);
            link.held = 0;
            // Before the answer: whoever asks again at once has this session, which is old enough.
            self.shared.fenced.offer(self.number);
        }
        if let Some(asks) = asks {
            let answer = match &held {
                Ok(held) => Ok(*held),
                Err(end) => Err(connection_lost(&end.to_string())),
            };
            // Whoever asked may have gone.
            let _ = asks.send(answer);
        }
        if !held? {
            return Err(End::Inconsistent("it did not hold a lock that it was granted"));
        }
        Self::show_as(link, self.shared.identity.application_name()).await
    }

    async fn until_given_up(
        &mut self,
        link: &mut Link,
        release: &mut FencedRelease,
    ) -> Result<Option<tokio::sync::oneshot::Sender<Result<bool, EngineError>>>, End> {
        let mut given_up = pin!(release.given_up());
        loop {
            let messages = &mut self.messages;
            let asks = link
                .idle_until(Moment::NEVER, |context| {
                    if let Poll::Ready(asks) = given_up.as_mut().poll(context) {
                        return Poll::Ready(Ok(asks));
                    }
                    match messages.poll_recv(context) {
                        // Nobody is sent here meanwhile.
                        Poll::Ready(Some(Message::Request(_))) | Poll::Pending => Poll::Pending,
                        Poll::Ready(_) => Poll::Ready(Err(End::Asked)),
                    }
                })
                .await?;
            if let Some(asks) = asks {
                return asks;
            }
        }
    }

    /// Releases the grant's own key, then the lock, and returns whether it had both.
    async fn release(link: &mut Link, fence: Fence) -> Result<bool, End> {
        for (key, mode) in [(fence.grant_key(), Mode::Exclusive), (fence.key(), fence.mode())] {
            if !link.unlock(key, mode).await? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Waits for a request. The first one is here from the beginning.
    async fn next_request(&mut self, link: &mut Link) -> Result<FencedRequest, End> {
        let leave = self.shared.clock.now().after(KEEP_IDLE);
        loop {
            // The word of it may have come while somebody waited for a lock.
            if self.shared.is_closing() {
                return Err(End::Asked);
            }
            match link
                .idle_until(leave, |context| self.messages.poll_recv(context))
                .await?
            {
                Some(Some(Message::Request(request))) => return Ok(request),
                Some(Some(Message::Close) | None) => return Err(End::Asked),
                // If the offer was taken, a request is on its way.
                None if self.shared.clock.now() >= leave && self.shared.fenced.take_back(self.number) => {
                    return Err(End::Asked);
                }
                None => {}
            }
        }
    }
}

/// Resolves when nobody wants the lock any more, or the engine closes.
async fn over(request: &mut FencedRequest, messages: &mut mpsc::UnboundedReceiver<Message>) {
    tokio::select! {
        () = request.reply.abandoned() => {}
        // Nobody else is sent here meanwhile.
        _ = messages.recv() => {}
    }
}
