//! Locks whose holders can run transactions that cannot commit once another holder has begun.
//!
//! A lock can be lost without its holder knowing: a paused process, a network that is cut. For some seconds it may believe
//! in a lock that another has by then. A **fenced** lock closes that gap for work in the same database: its guard has a
//! [`Fence`], and a *fenced transaction* proves at its beginning that this very grant is in force, and keeps later
//! grants waiting until it has ended. Fenced transactions are opened by the adapters of the database libraries.
//!
//! A fenced grant also has a [`Term`], a number that grows with each grant, for fencing what is outside of the database.
//!
//! # Limits
//!
//! - Each fenced lock has a connection of its own for as long as it is held or waited for, and its grant is handed out only
//!   when that connection is as old as the time for which a lost lock may be believed in (5 s by default). Connections
//!   are kept for the next fenced lock, so that the wait is for the first one only.
//! - Data in another database is not fenced, and neither is work outside of fenced transactions.
//! - A fenced transaction that never ends keeps the next holder waiting: the server ends one that is idle for too long.
//! - A term grows within the life of one cluster. After a restore, or an upgrade by `pg_upgrade`, it may begin again.

mod acquire;
mod guard;
mod term;
mod token;

pub use acquire::{AcquireFenced, FencedBuilder};
pub use guard::FencedGuard;
pub use term::Term;
pub use token::{Fence, ParseFenceError};
