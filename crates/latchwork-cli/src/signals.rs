//! Signals that come to this process, and where they go.

use std::{cell::Cell, fs, future::poll_fn, io, rc::Rc, task::Poll, time::Duration};

use rustix::process::Signal;
use tokio::{
    signal::unix::{Signal as Stream, SignalKind, signal},
    time::sleep,
};

use crate::{child::Target, terminal};

/// The signals that a command may get. While one runs they are passed on to it; else those that mean "end" end us.
pub(crate) struct Signals {
    streams: Vec<(Signal, Stream)>,
    recipient: Rc<Recipient>,
}

/// Who gets the signals, to be set by whoever starts a command.
#[derive(Default)]
pub(crate) struct Recipient {
    target: Cell<Option<Target>>,
    told_to_end: Cell<bool>,
}

impl Recipient {
    pub(crate) fn set(&self, target: Option<Target>) {
        self.target.set(target);
    }

    /// Whether a signal that means "end" was passed on: then nothing is to be started any more.
    pub(crate) fn was_told_to_end(&self) -> bool {
        self.told_to_end.get()
    }
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
            recipient: Rc::default(),
        })
    }

    pub(crate) fn recipient(&self) -> Rc<Recipient> {
        Rc::clone(&self.recipient)
    }

    /// Passes signals on, until one comes that ends this process because no command runs.
    pub(crate) async fn pass_on(&mut self) -> Signal {
        let mut lacks_terminal = false;
        loop {
            let signal = tokio::select! {
                signal = self.next() => signal,
                () = sleep(LOOK_AGAIN), if lacks_terminal => {
                    // A shell has nobody go on whose job it takes for one that runs, as ours does.
                    if terminal::is_ours() {
                        lacks_terminal = false;
                        terminal::go_on();
                    }
                    continue;
                }
            };
            let is_ending = ENDING.contains(&signal);
            match self.recipient.target.get() {
                Some(target) => {
                    lacks_terminal |= matches!(signal, Signal::TTIN | Signal::TTOU);
                    self.recipient
                        .told_to_end
                        .set(self.recipient.was_told_to_end() | is_ending);
                    target.pass_on(signal);
                }
                None if is_ending => return signal,
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
    // Taken so that neither Ctrl-Z stops us, nor a command in the background that wants the terminal: who stands still
    // loses the lock.
    Signal::TSTP,
    Signal::TTIN,
    Signal::TTOU,
];

/// How often it is looked whether the terminal is ours, for a command that waits for it.
const LOOK_AGAIN: Duration = Duration::from_millis(100);

const ENDING: &[Signal] = &[Signal::HUP, Signal::INT, Signal::QUIT, Signal::TERM];
