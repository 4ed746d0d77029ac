//! What a promise needs to know of the lock server that it is tested on.

use std::future::Future;
use std::pin::Pin;
use std::time::{Duration, Instant};

use latchwork_core::{HandOverBound, Key, Locks};
use tokio::time::sleep;

use crate::Party;
use crate::polling::step;

/// How long anything may take that is bound to happen. The machine may be busy.
pub(crate) const LONG: Duration = Duration::from_secs(20);

/// How long an abandoned acquire may leave a trace in the server. It is undone within two round trips, or by a cancel
/// request; a slice in the server's queue would last at least 4 s.
pub(crate) const SETTLES: Duration = Duration::from_secs(3);

/// What the server itself says about one test's keys.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[expect(clippy::exhaustive_structs, reason = "the suite is not a library for others")]
pub struct View {
    /// Holds, over all sessions.
    pub held: usize,
    /// Requests in the server's queues.
    pub waiting: usize,
}

impl View {
    pub(crate) const NOTHING: Self = Self { held: 0, waiting: 0 };

    pub(crate) const fn held(held: usize) -> Self {
        Self { held, waiting: 0 }
    }
}

/// A lock server with nothing on it, for one test.
pub trait World: Sized {
    /// One who competes for keys.
    type Party: Party;

    /// Whether one who waits is seen in the server's queue; if not, he polls.
    const QUEUES: bool;

    /// Whether [`end_holders_of`](Self::end_holders_of) ends the sessions of others too.
    const ENDS_ALL: bool = false;

    /// Whether a wait that was dropped stands in the server's queue for the rest of its slice, of about 1 s.
    const LINGERS: bool = false;

    /// Begins.
    fn start() -> impl Future<Output = Self>;

    /// Makes one more who competes, independent of the others.
    fn party(&self) -> impl Future<Output = Self::Party>;

    /// What the server says.
    fn view(&self) -> impl Future<Output = View>;

    /// Ends the sessions that hold a key, from outside.
    fn end_holders_of(&self, key: Key) -> impl Future<Output = ()>;

    /// The lines of the server's log about this test that tell of trouble, but for those that were allowed.
    fn complaints(&self) -> impl Future<Output = Vec<String>>;

    /// Allows so many lines with these words in the server's log.
    fn allow(&self, words: &'static str, most: usize);

    /// What is left in this process, in words; `None` if nothing is.
    fn leftovers(&self) -> Option<String>;

    /// Ends what the world has made.
    fn end(self) -> impl Future<Output = ()>;

    /// Waits until the server says this.
    fn becomes(&self, expected: View) -> impl Future<Output = ()> {
        self.becomes_within(LONG, expected)
    }

    /// Waits until the server says this, but no longer than an abandoned acquire may leave a trace.
    fn settles_to(&self, expected: View) -> impl Future<Output = ()> {
        self.becomes_within(SETTLES, expected)
    }

    /// Waits until the server says this.
    fn becomes_within(&self, limit: Duration, expected: View) -> impl Future<Output = ()> {
        async move {
            let begun = Instant::now();
            loop {
                let view = self.view().await;
                if view == expected {
                    return;
                }
                assert!(begun.elapsed() < limit, "{view:?} and not {expected:?} after {limit:?}");
                step().await;
            }
        }
    }

    /// Drives a future until the server shows so many who wait. Where those who wait are not seen, drives it for as
    /// long as it takes to ask several times. It must not end meanwhile.
    fn drive_until_waiting<F: Future>(&self, waiting: usize, mut future: Pin<&mut F>) -> impl Future<Output = ()>
    where
        F::Output: std::fmt::Debug,
    {
        async move {
            let seen = async {
                if Self::QUEUES {
                    let begun = Instant::now();
                    while self.view().await.waiting != waiting {
                        assert!(begun.elapsed() < LONG, "{:?}, not {waiting} waiting", self.view().await);
                        step().await;
                    }
                } else {
                    sleep(Duration::from_millis(35)).await;
                }
            };
            tokio::select! {
                biased;
                output = future.as_mut() => panic!("did not wait: {output:?}"),
                () = seen => {}
            }
        }
    }
}

/// How a process is set up.
#[derive(Clone, Copy, Debug, Default)]
#[expect(clippy::exhaustive_structs, reason = "the suite is not a library for others")]
pub struct Setup {
    /// How long keys are handed from one local holder to the next.
    pub hand_over: HandOverBound,
    /// How many locks the process is to hold on one session.
    pub locks: Option<usize>,
}

/// A world whose locks belong to sessions of processes.
pub trait SessionWorld: World<Party = Locks> {
    /// Makes a further process.
    fn process_with(&self, setup: Setup) -> impl Future<Output = Locks>;

    /// Makes a further process on default settings.
    fn process(&self) -> impl Future<Output = Locks> {
        self.process_with(Setup::default())
    }
}

/// A world whose server tells how often a key was tried.
pub trait Counting: SessionWorld {
    /// Has the server count attempts. To be called before the first process is made.
    fn count_attempts(&self) -> impl Future<Output = ()>;

    /// How many attempts it has counted.
    fn attempts(&self) -> usize;
}

/// A world whose server can be stopped, since it is nobody else's.
pub trait Breakable: SessionWorld {
    /// Stops the server, and its sessions.
    fn stop_server(&self);

    /// Starts it again.
    fn start_server(&self);
}
