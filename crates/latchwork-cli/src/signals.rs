//! Signals that come to this process, and where they go.

use std::{cell::Cell, fs, future::poll_fn, io, rc::Rc, task::Poll};

use rustix::process::Signal;
use tokio::signal::unix::{Signal as Stream, SignalKind, signal};

use crate::child::Target;

/// The signals that a command may get. While one runs they are passed on to it; else those that mean "end" end us.
pub(crate) struct Signals {
    streams: Vec<(Signal, Stream)>,
    target: Rc<Cell<Option<Target>>>,
}

impl Signals {
    /// Takes over the signals of this process, but for those that it was told to ignore: under nohup the command is to
    /// ignore them too.
    pub(crate) fn take() -> io::Result<Self> {
        let ignored = ignored();
        let streams = TAKEN
            .iter()
            .filter(|taken| ignored >> (taken.as_raw() - 1) & 1 == 0)
            .map(|taken| Ok((*taken, signal(SignalKind::from_raw(taken.as_raw()))?)))
            .collect::<io::Result<_>>()?;
        Ok(Self {
            streams,
            target: Rc::default(),
        })
    }

    /// Where they go, to be set by whoever starts a command.
    pub(crate) fn target(&self) -> Rc<Cell<Option<Target>>> {
        Rc::clone(&self.target)
    }

    /// Passes signals on, until one comes that ends this process because no command runs.
    pub(crate) async fn pass_on(&mut self) -> Signal {
        loop {
            let signal = self.next().await;
            match self.target.get() {
                Some(target) => target.pass_on(signal),
                None if ENDING.contains(&signal) => return signal,
                None => {}
            }
        }
    }

    async fn next(&mut self) -> Signal {
        poll_fn(|cx| {
            for (signal, stream) in &mut self.streams {
                if stream.poll_recv(cx).is_ready() {
                    return Poll::Ready(*signal);
                }
            }
            Poll::Pending
        })
        .await
    }
}

/// The signals that this process ignores, a bit for each. Only Linux tells without `unsafe`.
fn ignored() -> u64 {
    fs::read_to_string("/proc/self/status")
        .ok()
        .and_then(|status| {
            let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"))?;
            u64::from_str_radix(mask.trim(), 16).ok()
        })
        .unwrap_or_default()
}

const TAKEN: &[Signal] = &[
    Signal::HUP,
    Signal::INT,
    Signal::QUIT,
    Signal::TERM,
    Signal::USR1,
    Signal::USR2,
    Signal::WINCH,
    Signal::CONT,
    // Taken so that Ctrl-Z does not stop us: who stands still loses the lock.
    Signal::TSTP,
];

const ENDING: &[Signal] = &[Signal::HUP, Signal::INT, Signal::QUIT, Signal::TERM];
