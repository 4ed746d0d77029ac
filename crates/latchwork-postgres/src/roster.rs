//! Sessions of one kind that are opened on demand, and offer themselves when they have nothing to do.

use std::collections::HashMap;

use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, error::SendError, unbounded_channel};

/// Which sessions there are, and the way to each. `M` is what they are told.
#[derive(Debug)]
pub(crate) struct Roster<M> {
    /// All that are open or being opened.
    sessions: HashMap<u64, UnboundedSender<M>>,
    /// Those that have nothing to do, the one that was busy last at the end.
    idle: Vec<u64>,
    last: u64,
}

impl<M> Roster<M> {
    /// How many there are.
    pub(crate) fn len(&self) -> usize {
        self.sessions.len()
    }

    /// Adds a session, and returns its number and where it is told what to do.
    pub(crate) fn add(&mut self) -> (u64, UnboundedReceiver<M>) {
        self.last += 1;
        let (sender, receiver) = unbounded_channel();
        self.sessions.insert(self.last, sender);
        (self.last, receiver)
    }

    /// Tells one session. Returns the message if that has ended.
    pub(crate) fn tell(&self, session: u64, message: M) -> Result<(), M> {
        match self.sessions.get(&session) {
            Some(sender) => sender.send(message).map_err(|SendError(unsent)| unsent),
            None => Err(message),
        }
    }

    /// Tells one that has nothing to do. Returns the message if there is none.
    pub(crate) fn tell_idle(&mut self, mut message: M) -> Result<(), M> {
        while let Some(idle) = self.idle.pop() {
            match self.tell(idle, message) {
                Ok(()) => return Ok(()),
                Err(unsent) => message = unsent,
            }
        }
        Err(message)
    }

    /// Tells all of them.
    pub(crate) fn tell_all(&self, message: impl Fn() -> M) {
        for session in self.sessions.values() {
            // One that has ended needs no word.
            let _ = session.send(message());
        }
    }

    /// Offers a session to whoever comes next.
    pub(crate) fn offer(&mut self, session: u64) {
        self.idle.push(session);
    }

    /// Takes the offer back. Returns false if something is on its way to the session already.
    pub(crate) fn take_back(&mut self, session: u64) -> bool {
        let at = self.idle.iter().position(|idle| *idle == session);
        if let Some(at) = at {
            self.idle.remove(at);
        }
        at.is_some()
    }

    /// Forgets a session that has ended.
    pub(crate) fn remove(&mut self, session: u64) {
        self.sessions.remove(&session);
        self.idle.retain(|idle| *idle != session);
    }
}

impl<M> Default for Roster<M> {
    fn default() -> Self {
        Self {
            sessions: HashMap::new(),
            idle: Vec::new(),
            last: 0,
        }
    }
}
