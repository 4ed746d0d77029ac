use std::time::Duration;

/// How long a process may keep a key to itself by handing it from one local holder to the next.
///
/// A hand-over inside the process costs no word to the server, and so the server's queue does not see it. The bound
/// keeps this fair: after `count` hand-overs or after `time`, whichever comes first, the key goes back to the server,
/// and the process queues there, or stays off the key for one poll interval, before it has another turn. Joining a
/// shared hold counts as one hand-over; at the bound the server is asked whether anybody queues.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct HandOverBound {
    /// The most hand-overs in one turn. Default 100,000.
    pub count: u32,
    /// The longest turn; a holder that is longer at work ends the turn with its release. Default 25 ms.
    pub time: Duration,
}

impl HandOverBound {
    /// A bound of `count` hand-overs and a turn of `time`. With a count or a time of zero there is no local hand-over.
    #[must_use]
    pub const fn new(count: u32, time: Duration) -> Self {
        Self { count, time }
    }
}

impl Default for HandOverBound {
    fn default() -> Self {
        Self {
            count: 100_000,
            time: Duration::from_millis(25),
        }
    }
}
