//! What a guard and a permit have in common: one local hold on one key, given up when it is dropped.

use std::{fmt, future::Future, sync::Arc};

use tokio::sync::oneshot;

use crate::{
    engine::EngineError,
    error::{Lost, ReleaseError},
    key::Key,
    locks::ShardHandle,
    session::{HoldState, SessionHealth},
    slots::Pool,
};

/// Where a hold came from, and where it goes back to.
#[derive(Clone)]
pub(crate) enum Origin {
    Gate(Arc<ShardHandle>),
    Pool { pool: Arc<Pool>, slot: u32 },
}

/// One local hold.
pub(crate) struct Claim(Option<Parts>);

struct Parts {
    origin: Origin,
    key: Key,
    turn: u64,
    session: Arc<SessionHealth>,
}

impl Claim {
    pub(crate) const fn new(origin: Origin, key: Key, session: Arc<SessionHealth>, turn: u64) -> Self {
        Self(Some(Parts {
            origin,
            key,
            turn,
            session,
        }))
    }

    pub(crate) const fn key(&self) -> Key {
        self.parts().key
    }

    pub(crate) const fn origin(&self) -> &Origin {
        &self.parts().origin
    }

    pub(crate) fn state(&self) -> HoldState {
        self.parts().session.state()
    }

    pub(crate) fn lost(&self) -> impl Future<Output = ()> + Send + use<> {
        let session = Arc::clone(&self.parts().session);
        async move { session.lost().await }
    }

    pub(crate) fn run<F: Future>(&self, work: F) -> impl Future<Output = Result<F::Output, Lost>> {
        run_until_lost(self.key(), Arc::clone(&self.parts().session), work)
    }

    /// Gives the hold up at once, and resolves to what became of it.
    pub(crate) fn release(self) -> impl Future<Output = Result<(), ReleaseError>> + Send {
        let key = self.key();
        let (waiter, answer) = oneshot::channel();
        self.give_up(Some(waiter));
        released(key, answer)
    }

    /// Takes the hold apart without giving it up.
    pub(crate) fn forget(mut self) {
        self.0 = None;
    }

    /// Takes the hold apart and leaves it held for as long as its session lives.
    pub(crate) fn leak(mut self) {
        if let Some(Parts { origin, turn, .. }) = self.0.take()
            && let Origin::Pool { pool, slot } = origin
        {
            pool.leak(slot, turn);
        }
    }

    const fn parts(&self) -> &Parts {
        self.0.as_ref().expect("only a consumed claim has no parts")
    }

    fn give_up(mut self, waiter: Option<oneshot::Sender<Result<bool, EngineError>>>) {
        if let Some(parts) = self.0.take() {
            parts.give_up(waiter);
        }
    }
}

/// Runs work on a session, and drops it when the session is lost.
pub(crate) async fn run_until_lost<F: Future>(
    key: Key,
    session: Arc<SessionHealth>,
    work: F,
) -> Result<F::Output, Lost> {
    tokio::select! {
        biased;
        () = session.lost() => Err(Lost::new(key)),
        output = work => Ok(output),
    }
}

/// What became of a hold that was given up, by the engine's answer.
pub(crate) async fn released(
    key: Key,
    answer: oneshot::Receiver<Result<bool, EngineError>>,
) -> Result<(), ReleaseError> {
    match answer.await {
        Ok(Ok(true)) => Ok(()),
        Ok(Ok(false)) => Err(ReleaseError::Lost { key }),
        Ok(Err(error)) => Err(ReleaseError::from_engine(key, &error)),
        Err(_) => Err(ReleaseError::Unconfirmed { key, source: None }),
    }
}

impl Parts {
    fn give_up(self, waiter: Option<oneshot::Sender<Result<bool, EngineError>>>) {
        match self.origin {
            Origin::Gate(gate) => gate.release(self.key, &self.session, self.turn, waiter),
            Origin::Pool { pool, slot } => pool.release(slot, &self.session, self.turn, waiter),
        }
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        if let Some(parts) = self.0.take() {
            parts.give_up(None);
        }
    }
}

impl fmt::Debug for Claim {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Claim")
            .field("key", &self.key())
            .field("state", &self.state())
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
