//! The signals that end the program.

use std::io;

use tokio::signal::unix::{Signal, SignalKind, signal};

/// Waits for Ctrl-C, SIGTERM, or the end of the terminal.
#[derive(Debug)]
pub(crate) struct Stop {
    interrupt: Signal,
    terminate: Signal,
    hangup: Signal,
}

impl Stop {
    /// From now on these signals end nothing by themselves.
    pub(crate) fn listen() -> io::Result<Self> {
        Ok(Self {
            interrupt: signal(SignalKind::interrupt())?,
            terminate: signal(SignalKind::terminate())?,
            hangup: signal(SignalKind::hangup())?,
        })
    }

    /// Waits for the first of them, and returns its number.
    pub(crate) async fn asked(&mut self) -> u8 {
        let kind = tokio::select! {
            _ = self.interrupt.recv() => SignalKind::interrupt(),
            _ = self.terminate.recv() => SignalKind::terminate(),
            _ = self.hangup.recv() => SignalKind::hangup(),
        };
        u8::try_from(kind.as_raw_value()).unwrap_or(u8::MAX)
    }
}
