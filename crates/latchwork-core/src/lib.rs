//! Keys, guards, the local gate and the policies of latchwork: everything that does not depend on which server keeps
//! the locks.
//!
//! - [`Locks`] is the front: it acquires keys and slots for a process, through one [`engine`].
//! - A [`Key`] says what is locked, a [`Mode`] how, a [`Guard`] that it is held, a [`Permit`] that one of
//!   several slots is.
//! - The local gate gives exclusion inside the process, queues local waiters, and hands a key from one to the next
//!   without a word to the server, within a [`HandOverBound`].
//! - The engine in [`memory`] keeps locks inside the process. The engine for PostgreSQL is the crate
//!   `latchwork-postgres`.
//! - [`fence`] has locks whose holders can run transactions that cannot commit once another holder has begun.
//! - [`leader`] elects one of the processes that campaign under a name.
//! - [`shards`] share the parts of some work among the workers that are there.
//! - [`once`] has work that one of several processes does, once for each tick of a schedule if need be.
//! - [`xact`] is the other scope: locks that a transaction of the caller's takes, through whichever library.
//! - [`rate`] limits how often something may happen, over all processes that share a database.
//!
//! # Features
//!
//! | feature | default | what it adds |
//! |---|---|---|
//! | `cron` | | schedules of cron expressions, in time zones whose rules are built in |
//!
//! # Examples
//!
//! ```
//! use std::time::Duration;
//! use latchwork_core::Locks;
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let locks = Locks::in_memory();
//! let guard = locks.acquire(["order", "42"]).within(Duration::from_secs(2)).await?;
//! assert!(guard.is_held());
//! guard.release().await?;
//! # Ok(())
//! # }
//! ```

mod acquire;
mod claim;
mod clock;
pub mod engine;
mod error;
pub mod fence;
mod gate;
mod guard;
pub mod key;
pub mod leader;
mod locks;
pub mod memory;
pub mod migrate;
mod mode;
pub mod once;
mod pause;
pub mod rate;
mod session;
pub mod shards;
pub mod slots;
pub mod sqlstate;
mod stats;
#[cfg(test)]
mod testing;
mod visit;
mod wall_clock;
pub mod xact;

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;

pub use acquire::{Acquire, AcquireBuilder, TryAcquire, WaitMethod};
pub use clock::{Clock, ClockHand, Moment};
pub use error::{AcquireError, CloseError, EngineCause, Lost, ReleaseError};
pub use gate::HandOverBound;
pub use guard::Guard;
pub use key::{Key, Namespace};
pub use locks::{Locks, LocksOptions};
pub use mode::Mode;
pub use session::{HoldState, SessionHealth};
pub use slots::{Permit, Slots};
pub use stats::Stats;
pub use wall_clock::WallClock;
