//! What the engine can be told.

use std::time::Duration;

use latchwork_core::{HandOverBound, LocksOptions, Namespace};

use crate::checks::ExclusionProbe;

/// The longest of all intervals: what is longer is a mistake, and would overflow sums.
const LONGEST: Duration = Duration::from_secs(3600);

/// Plain values that the engine is made with.
///
/// # Examples
///
/// ```
/// use std::time::Duration;
/// use latchwork_postgres::PostgresOptions;
///
/// let options = PostgresOptions::default()
///     .with_application_name("billing")
///     .with_poll_interval(Duration::from_millis(20));
/// assert_eq!(options.timing.silence(), Duration::from_secs(15));
/// ```
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct PostgresOptions {
    /// What names are mixed with. Default: the unnamed namespace.
    pub namespace: Namespace,
    /// The name that others see this process under, in `application_name` and in the inspection. Default: what the
    /// connection settings say, else the name of the executable. What is not printable ASCII is shown as `?`, and it is cut
    /// to 40 characters.
    pub application_name: Option<String>,
    /// How often sessions are pinged, and how long they are trusted.
    pub timing: Timing,
    /// How long a process may hand a key from one local holder to the next.
    pub hand_over: HandOverBound,
    /// How often a key is asked for again by those who poll, give or take a fifth. Default 50 ms.
    pub poll_interval: Duration,
    /// The longest time for which a wait stands in the server's queue before it begins anew at the tail, give or take a
    /// fifth. A waiting statement keeps vacuum and `CREATE INDEX CONCURRENTLY` from going on for so long. Default 5 s.
    pub wait_slice: Duration,
    /// The most sessions that wait in the server. Wants beyond that number poll. Default 4.
    pub waiter_sessions: usize,
    /// The most fenced locks that this process holds and waits for at once; each has a session of its own. Default 8.
    pub fenced_sessions: usize,
    /// How many locks one session holds before a further session is opened. Default 2,000.
    pub locks_per_session: usize,
    /// The most locks that this process holds. Default: a quarter of the server's lock table.
    pub max_locks: Option<usize>,
    /// How it is found out at the first connect whether the server's locks exclude. Default: with two sessions.
    pub exclusion_probe: ExclusionProbe,
}

impl Default for PostgresOptions {
    fn default() -> Self {
        Self {
            namespace: Namespace::unnamed(),
            application_name: None,
            timing: Timing::default(),
            hand_over: HandOverBound::default(),
            poll_interval: Duration::from_millis(50),
            wait_slice: Duration::from_secs(5),
            waiter_sessions: 4,
            fenced_sessions: 8,
            locks_per_session: 2_000,
            max_locks: None,
            exclusion_probe: ExclusionProbe::default(),
        }
    }
}

impl PostgresOptions {
    /// Sets what names are mixed with.
    #[must_use]
    pub fn with_namespace(mut self, namespace: Namespace) -> Self {
        self.namespace = namespace;
        self
    }

    /// Sets the name that others see this process under.
    #[must_use]
    pub fn with_application_name(mut self, name: impl Into<String>) -> Self {
        self.application_name = Some(name.into());
        self
    }

    /// Sets how often sessions are pinged, and how long they are trusted.
    #[must_use]
    pub const fn with_timing(mut self, timing: Timing) -> Self {
        self.timing = timing;
        self
    }

    /// Sets how long a process may hand a key from one local holder to the next.
    #[must_use]
    pub const fn with_hand_over(mut self, bound: HandOverBound) -> Self {
        self.hand_over = bound;
        self
    }

    /// Sets how often a key is asked for again by those who poll. At least 1 ms, at most an hour.
    #[must_use]
    pub fn with_poll_interval(mut self, interval: Duration) -> Self {
        self.poll_interval = interval.clamp(Duration::from_millis(1), LONGEST);
        self
    }

    /// Sets the longest time for which a wait stands in the server's queue. At least 10 ms, at most an hour.
    #[must_use]
    pub fn with_wait_slice(mut self, slice: Duration) -> Self {
        self.wait_slice = slice.clamp(Duration::from_millis(10), LONGEST);
        self
    }

    /// Sets the most sessions that wait in the server. With 0, all waiting is polling.
    #[must_use]
    pub const fn with_waiter_sessions(mut self, sessions: usize) -> Self {
        self.waiter_sessions = sessions;
        self
    }

    /// Sets the most fenced locks that this process holds and waits for at once.
    #[must_use]
    pub const fn with_fenced_sessions(mut self, sessions: usize) -> Self {
        self.fenced_sessions = sessions;
        self
    }

    /// Sets how many locks one session holds before a further one is opened. At least 1.
    #[must_use]
    pub fn with_locks_per_session(mut self, locks: usize) -> Self {
        self.locks_per_session = locks.max(1);
        self
    }

    /// Sets the most locks that this process holds.
    #[must_use]
    pub const fn with_max_locks(mut self, locks: usize) -> Self {
        self.max_locks = Some(locks);
        self
    }

    /// Sets how it is found out at the first connect whether the server's locks exclude.
    #[must_use]
    pub const fn with_exclusion_probe(mut self, probe: ExclusionProbe) -> Self {
        self.exclusion_probe = probe;
        self
    }

    pub(crate) fn for_locks(&self) -> LocksOptions {
        let mut options = LocksOptions::default();
        options.namespace = self.namespace.clone();
        options.hand_over = self.hand_over;
        options
    }
}

/// When a session is pinged, how long an answer is trusted, and when a silent session is given up.
///
/// A holder trusts its session for [`Timing::trust`] after it *sent* a statement that was answered. The server ends a
/// session that has been silent for [`Timing::silence`], three times as long. So a holder whose network or machine
/// stands still stops believing before the server lets the next one in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timing {
    ping_interval: Duration,
    ping_limit: Duration,
}

impl Timing {
    /// Pings every `ping_interval` (default 2 s), and waits for an answer for `ping_limit` (default 3 s). Both are at
    /// least 10 ms and at most an hour.
    #[must_use]
    pub fn new(ping_interval: Duration, ping_limit: Duration) -> Self {
        let least = Duration::from_millis(10);
        Self {
            ping_interval: ping_interval.clamp(least, LONGEST),
            ping_limit: ping_limit.clamp(least, LONGEST),
        }
    }

    /// How often a session is pinged that has nothing else to say.
    #[must_use]
    pub const fn ping_interval(&self) -> Duration {
        self.ping_interval
    }

    /// How long an answer may take before its session is suspended.
    #[must_use]
    pub const fn ping_limit(&self) -> Duration {
        self.ping_limit
    }

    /// How long after it was sent an answered statement proves that the session holds its locks.
    #[must_use]
    pub fn trust(&self) -> Duration {
        self.ping_interval + self.ping_limit
    }

    /// After how much silence both sides give the session up.
    #[must_use]
    pub fn silence(&self) -> Duration {
        self.trust() * 3
    }
}

impl Default for Timing {
    fn default() -> Self {
        Self::new(Duration::from_secs(2), Duration::from_secs(3))
    }
}
