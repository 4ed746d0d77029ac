//! One waiter session: waits in the server's queue for one key at a time, and holds nothing meanwhile.
//!
//! If it wins it keeps that one lock until its release, and waits for nothing else. So no release queues behind a wait,
//! and no wait of ours can be part of a deadlock.

use std::{sync::Arc, time::Duration};

use latchwork_core::{
    Moment,
    engine::{EngineError, EngineErrorKind, Grant, ReleaseRequest},
};
use tokio::sync::mpsc;

use crate::{
    error::{StatementError, connection_lost},
    link::{End, Link},
    queue::Message,
    quiet_slice::{Slice, slice},
    room::Reservation,
    shared::Shared,
    sql,
    wait::Wait,
};

/// How long a session is kept that nobody waits on.
const KEEP_IDLE: Duration = Duration::from_secs(30);

/// The task that owns one waiter session.
pub(crate) struct Waiter {
    shared: Arc<Shared>,
    number: u64,
    messages: mpsc::UnboundedReceiver<Message>,
}

impl Waiter {
    pub(crate) fn new(shared: Arc<Shared>, number: u64, messages: mpsc::UnboundedReceiver<Message>) -> Self {
        Self {
            shared,
            number,
            messages,
        }
    }

    /// Connects, and waits for whatever comes, until nobody needs it any more.
    pub(crate) async fn run(mut self) {
        let connected = self.shared.connect().await;
        if let Err(error) = &connected {
            self.shared.waiters.could_not_open(&self.shared, error);
        }
        self.shared.waiters.opened();
        match connected {
            Err(_) => {}
            Ok(connected) => {
                // No try is on its way here, and other sessions speak for the server.
                let mut link = self.shared.link(connected, Arc::new(|_| {}));
                let health = Arc::clone(&link.health);
                let end = self.serve(&mut link).await;
                self.shared.session_lost(&health, link.held, &end);
                if matches!(end, End::Asked) {
                    link.close().await;
                }
            }
        }
        self.shared.waiters.ended(self.number);
        // What was sent while this ended must be answered.
        self.messages.close();
        while let Ok(message) = self.messages.try_recv() {
            match message {
                Message::Wait(wait) => wait.answer(Err(connection_lost("the waiting session has ended"))),
                Message::Release(request) => request.reply.send(Ok(false)),
                Message::Close => {}
            }
        }
    }

    async fn serve(&mut self, link: &mut Link) -> End {
        let mut next = None;
        loop {
            let done = match next.take() {
                Some(wait) => self.wait_and_hold(link, wait).await,
                None => self.next_wait(link).await.map(|wait| next = wait),
            };
            if let Err(end) = done {
                return end;
            }
        }
    }

    /// Waits for a key, and holds it until its release.
    async fn wait_and_hold(&mut self, link: &mut Link, wait: Wait) -> Result<(), End> {
        let (key, mode) = (wait.request().key, wait.request().mode);
        if !self.wait(link, wait).await? {
            return Ok(());
        }
        let request = self.next_release(link).await?;
        match link.unlock(key, mode).await {
            Ok(true) => {}
            Ok(false) => {
                request.reply.send(Ok(false));
                return Err(End::Inconsistent("it did not hold a lock that it was granted"));
            }
            Err(end) => {
                request.reply.send(Err(connection_lost(&end.to_string())));
                return Err(end);
            }
        }
        link.held = 0;
        self.shared.room.give_back(1);
        self.shared.waiters.let_go(link.health.id());
        request.reply.send(Ok(true));
        Ok(())
    }

    /// Waits until the key is granted or nobody wants it any more. Returns whether it is held.
    async fn wait(&self, link: &mut Link, wait: Wait) -> Result<bool, End> {
        let shared = Arc::clone(&self.shared);
        let Some(reservation) = shared.room.reserve() else {
            let error = StatementError::TooManyHeld {
                held: shared.room.taken(),
            };
            wait.answer(Err(error.into_engine()));
            return Ok(false);
        };
        loop {
            // Whoever waits beyond the first one's limit begins anew with a limit that is told.
            let over = wait.until() <= shared.clock.now();
            if over || wait.is_abandoned() || shared.is_closing() {
                wait.answer(Ok(None));
                return Ok(false);
            }
            match self.slice(link, &wait).await {
                Ok(Slice::Granted) if !wait.is_abandoned() => {
                    return self.hand_over(link, wait, reservation).await;
                }
                Ok(Slice::Granted) => self.undo(link).await?,
                Ok(Slice::NotGranted) => {}
                Ok(Slice::Failed(error)) => {
                    self.undo(link).await?;
                    if !wait.is_abandoned() {
                        wait.answer(Err(error));
                        return Ok(false);
                    }
                }
                Err(end) => {
                    wait.answer(Err(connection_lost(&end.to_string())));
                    return Err(end);
                }
            }
        }
    }

    /// Hands a grant over, once the session is known to have outlived the wait.
    async fn hand_over(&self, link: &mut Link, wait: Wait, reservation: Reservation<'_>) -> Result<bool, End> {
        link.held = 1;
        if let Err(end) = link.settle().await {
            link.held = 0;
            wait.answer(Err(connection_lost(&end.to_string())));
            return Err(end);
        }
        reservation.keep();
        self.shared.waiters.holds(self.number, link.health.id());
        wait.answer(Ok(Some(Grant::unordered(Arc::clone(&link.health)))));
        Ok(true)
    }

    /// Waits in the server's queue once.
    async fn slice(&self, link: &mut Link, wait: &Wait) -> Result<Slice, End> {
        // At its limit a wait ends by itself, without a cancel request.
        let left = wait.until().since(self.shared.clock.now());
        let length = Shared::jittered(self.shared.options.wait_slice).min(left);
        let sql = sql::wait_slice(wait.request().key, wait.request().mode, length);
        let patience = self.shared.options.timing.ping_limit();
        slice(link, sql, length, patience, wait.abandoned()).await
    }

    /// Releases whatever a failed, cancelled or unwanted slice has left.
    async fn undo(&self, link: &mut Link) -> Result<(), End> {
        link.ask(|client| async move { client.batch_execute(sql::UNLOCK_ALL).await })
            .await
    }

    /// Holds the lock until it is released.
    async fn next_release(&mut self, link: &mut Link) -> Result<ReleaseRequest, End> {
        loop {
            match self.next_message(link, Moment::NEVER).await? {
                Some(Message::Release(request)) => return Ok(request),
                Some(Message::Close) => return Err(End::Asked),
                Some(Message::Wait(wait)) => wait.answer(Err(EngineError::new(EngineErrorKind::Failed))),
                None => {}
            }
        }
    }

    /// Takes the wait that has polled longest, or offers itself.
    async fn next_wait(&mut self, link: &mut Link) -> Result<Option<Wait>, End> {
        if let Some(polling) = self.unpark() {
            return Ok(Some(polling));
        }
        self.shared.waiters.offer(self.number);
        // One that was put aside in between did not see the offer.
        if let Some(polling) = self.unpark() {
            if self.shared.waiters.take_back(self.number) {
                return Ok(Some(polling));
            }
            self.shared.primary().go_on_waiting(&self.shared, polling);
        }
        let leave = self.shared.clock.now().after(KEEP_IDLE);
        loop {
            match self.next_message(link, leave).await? {
                Some(Message::Wait(wait)) => return Ok(Some(wait)),
                Some(Message::Release(request)) => request.reply.send(Ok(false)),
                Some(Message::Close) => return Err(End::Asked),
                // If the offer was taken, the wait is on its way.
                None if self.shared.clock.now() >= leave && self.shared.waiters.take_back(self.number) => {
                    return Err(End::Asked);
                }
                None => {}
            }
        }
    }

    fn unpark(&self) -> Option<Wait> {
        self.shared
            .sessions()
            .iter()
            .find_map(|session| session.inbox.unpark_oldest())
    }

    /// Waits for a message until `leave`, and pings meanwhile.
    async fn next_message(&mut self, link: &mut Link, leave: Moment) -> Result<Option<Message>, End> {
        let message = link
            .idle_until(leave, |context| self.messages.poll_recv(context))
            .await?;
        Ok(message.map(|message| message.unwrap_or(Message::Close)))
    }
}
