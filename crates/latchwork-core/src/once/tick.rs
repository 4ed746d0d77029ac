use std::time::{Duration, SystemTime};

use super::{RunEnd, micros, sql};
use crate::key::Key;

/// A claim on one tick of a job: what is asked of the ledger, in words of SQL.
///
/// [`OnceBuilder::run`](super::OnceBuilder::run) claims by itself. Whoever wants the claim to commit with the work takes it
/// from [`OnceBuilder::claim`](super::OnceBuilder::claim), sends the one [`statement`](Self::statement) on the transaction of
/// the work before that begins, and [reads](Self::read) the one text that comes back. `latchwork-postgres` does both in
/// `claim_tick`.
///
/// A claim that is repeated is the same claim: whoever does not know whether it was granted may ask again.
///
/// # Examples
///
/// ```
/// use std::time::Duration;
/// use latchwork_core::{Locks, once::{Schedule, TickAnswer}};
///
/// # fn send(statement: &str) -> &'static str { assert!(statement.contains("latchwork.ticks")); "claimed" }
/// let locks = Locks::in_memory();
/// let hourly = Schedule::every(Duration::from_secs(3_600))?;
/// let claim = locks.once("invoices").on(&hourly).claim()?.expect("the last full hour");
/// assert_eq!(claim.read(send(&claim.statement())), Some(TickAnswer::Claimed));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub struct TickClaim {
    pub(super) key: Key,
    pub(super) name: String,
    pub(super) tick: i64,
    pub(super) allowed: Duration,
    pub(super) number: i64,
    pub(super) claimed_by: Option<String>,
    /// How the run has ended by the claim itself, if it has.
    pub(super) end: Option<RunEnd>,
}

/// What the ledger says to a claim.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum TickAnswer {
    /// The tick is claimed: the work may begin.
    Claimed,
    /// Somebody is at it: the claim of another transaction is not committed yet.
    Busy,
    /// The tick, or a later one, was claimed before.
    Taken,
    /// The tick lies further ahead of the database's clock than is allowed.
    Ahead {
        /// How far it lies ahead.
        by: Duration,
    },
}

impl TickClaim {
    /// A claim that commits with the transaction that it is made in. `allowed` is how far the tick may lie ahead of the
    /// database's clock: one interval at most, so that a node whose clock is wrong does not stop the job.
    #[must_use]
    pub fn new(job: Key, name: impl Into<String>, tick: SystemTime, allowed: Duration) -> Self {
        Self {
            key: Self::ledger_key(job),
            name: name.into(),
            tick: micros::of(tick),
            allowed,
            number: fastrand::i64(..),
            claimed_by: None,
            end: Some(RunEnd::Committed),
        }
    }

    /// Sets who claims, for the reports. Default: the `application_name` of the session.
    #[must_use]
    pub fn claimed_by(mut self, who: impl Into<String>) -> Self {
        self.claimed_by = Some(who.into());
        self
    }

    /// The key that a job has in the ledger: that of its row, and of the lock that a claim takes for its transaction.
    #[must_use]
    pub fn ledger_key(job: Key) -> Key {
        job.derive("tick", 0)
    }

    /// The key of the job in the ledger.
    #[must_use]
    pub const fn key(&self) -> Key {
        self.key
    }

    /// The name of the job.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The tick that is claimed, to the microsecond.
    #[must_use]
    pub fn tick(&self) -> SystemTime {
        micros::moment(self.tick)
    }

    /// How far the tick may lie ahead of the database's clock.
    #[must_use]
    pub const fn allowed(&self) -> Duration {
        self.allowed
    }

    /// The number that tells this claim from others on the same tick.
    #[must_use]
    pub const fn number(&self) -> i64 {
        self.number
    }

    /// What the ledger is to say of the end at once: where there is nobody who would say so later.
    #[must_use]
    pub const fn end(&self) -> Option<RunEnd> {
        self.end
    }

    /// The one statement that claims. It has no parameters, and answers one text in one row. It waits for no other claim.
    #[must_use]
    pub fn statement(&self) -> String {
        sql::claim(self)
    }

    /// Reads the text that the statement answers with; `None` if it is none of ours.
    #[must_use]
    pub fn read(&self, answer: &str) -> Option<TickAnswer> {
        match answer {
            "claimed" => Some(TickAnswer::Claimed),
            "busy" => Some(TickAnswer::Busy),
            "taken" => Some(TickAnswer::Taken),
            _ => {
                let by = answer.strip_prefix("ahead ")?.parse().ok()?;
                let by = Duration::from_micros(by);
                Some(TickAnswer::Ahead { by })
            }
        }
    }

    /// A claim of a run whose end is told later.
    pub(super) fn for_run(mut self, number: Option<i64>) -> Self {
        self.number = number.unwrap_or(self.number);
        self.end = None;
        self
    }

    /// A claim that makes a job known of which nothing is known yet, and is never granted otherwise.
    pub(super) fn that_enrols(mut self) -> Self {
        self.end = Some(RunEnd::Enrolled);
        self
    }
}
