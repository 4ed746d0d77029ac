//! What ends the program.

use std::io;

use tokio::{
    signal::unix::{Signal, SignalKind, signal},
    sync::oneshot,
};

/// Waits for Ctrl-C or SIGTERM.
#[derive(Debug)]
pub(crate) struct Stop {
    interrupt: Signal,
    terminate: Signal,
}

impl Stop {
    /// From now on these signals end nothing by themselves.
    ///
    /// # Errors
    ///
    /// Fails when the system has no room for one more handler of signals.
    pub(crate) fn listen() -> io::Result<Self> {
        Ok(Self {
            interrupt: signal(SignalKind::interrupt())?,
            terminate: signal(SignalKind::terminate())?,
        })
    }

    /// Waits for the next of them.
    ///
    /// # Cancel safety
    ///
    /// A signal that has come is not forgotten when this is dropped.
    pub(crate) async fn asked(&mut self) {
        tokio::select! {
            _ = self.interrupt.recv() => {}
            _ = self.terminate.recv() => {}
        }
    }
}

/// Tells a server to take no more requests, and to end when those are answered that it has.
#[derive(Debug)]
pub struct End(oneshot::Receiver<()>);

impl End {
    /// An end, which comes when what is returned beside it is dropped.
    pub(crate) fn new() -> (oneshot::Sender<()>, Self) {
        let (ends, end) = oneshot::channel();
        (ends, Self(end))
    }

    /// Waits for it.
    ///
    /// # Cancel safety
    ///
    /// Dropped midway, it has no effect.
    pub async fn comes(self) {
        drop(self.0.await);
    }
}
