//! Work that is done once, although several processes come to do it.
//!
//! [`Locks::once`] tries a lock, runs the work if it was free, and skips it if others are at it: it never waits. Since a try
//! alone lets a job of 1 ms run twice where two nodes come a moment apart, there are two ways to keep the second one out:
//!
//! - [`with_hold_at_least`](OnceBuilder::with_hold_at_least) keeps the lock for a while when the work is done. It needs no
//!   table, and excludes whoever comes within that time.
//! - A **tick** names the run by the moment that it was scheduled for, whatever the clocks of the nodes say:
//!   [`tick`](OnceBuilder::tick), or [`on`](OnceBuilder::on) a [`Schedule`]. A ledger in the database has the last tick of
//!   each job, and only a later one is ever claimed.
//!
//! # Once, at most once, exactly once
//!
//! | | runs | where it ends |
//! |---|---|---|
//! | the lock alone | one at a time | the next one may run as soon as it is done |
//! | with a tick | at most once a tick | a process that dies midway has taken the tick with it |
//! | [`OnceBuilder::claim`], in the work's own transaction | exactly once a tick | what the work does outside of its transaction |
//!
//! A [`Scheduler`] runs several jobs by their schedules, in each process, and each tick in one of them.
//!
//! An outage is not a skip: it is an error, and says nothing of whether others have run.
//!
//! # Examples
//!
//! ```
//! use std::time::{Duration, SystemTime};
//! use latchwork_core::{Locks, once::{Outcome, Skipped}};
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let locks = Locks::in_memory();
//! // Every node comes at the full hour, a little before or after the others, and names that hour; one of them does it. The
//! // time at which a node comes is no tick: no two of them have the same.
//! let hour = Duration::from_secs(3_600);
//! let hours = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH)?.as_secs() / 3_600;
//! let tick = SystemTime::UNIX_EPOCH + Duration::from_secs(hours * 3_600);
//! let mail = || locks.once("mail the report").tick(tick, hour);
//! assert_eq!(mail().run(async { 17 }).await?, Outcome::Ran(17));
//! assert_eq!(mail().run(async { 17 }).await?, Outcome::Skipped(Skipped::Claimed));
//! # Ok(())
//! # }
//! ```
//!
//! [`Locks::once`]: crate::Locks::once

mod builder;
mod error;
mod last_run;
mod ledger;
mod micros;
mod outcome;
mod run;
mod schedule;
mod scheduler;
mod sql;
mod tick;

pub use builder::OnceBuilder;
pub use error::{LedgerError, OnceError};
pub use last_run::{LastRun, RunEnd};
pub use outcome::{Outcome, Skipped};
pub use run::Run;
pub use schedule::{Schedule, ScheduleError};
pub use scheduler::{Job, JobError, JobReport, Missed, Scheduler};
pub(crate) use sql::record as record_statement;
pub use tick::{TickAnswer, TickClaim};

#[cfg(test)]
mod tests;
