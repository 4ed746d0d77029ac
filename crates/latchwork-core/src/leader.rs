//! Leader election: of all processes that campaign under one name, one leads at a time.
//!
//! A leader is the holder of a [fenced](crate::fence) lock, on a session of its own. [`Locks::leader`] begins a
//! [`Candidate`], which campaigns in a task of its own for as long as there is one, and again after each loss:
//!
//! - [`Candidate::run`] runs work while this process leads;
//! - [`Candidate::is_leader`] says whether it leads right now, from the local clock, without asking anybody;
//! - [`Candidate::watch`] has the latest [`LeaderState`], and [`Candidate::transitions`] each of them in order.
//!
//! # States
//!
//! ```text
//! Follower ──▶ Leader ◀──▶ Suspended ──▶ Lost ──▶ Follower
//!                └───────────┴─────▶ Resigned ──▶ Follower
//! ```
//!
//! A leader whose server does not answer in time is *suspended*: it does not believe in its leadership, but has the lock
//! still, and leads on under the same term if the server confirms it. If not, the leadership is *lost*. Only a new grant
//! leads again. Where there is a limit for work to return in, work that exceeds it is told of as *undrained*, between the
//! end of a leadership and the next campaign.
//!
//! # Limits
//!
//! - A leader that is stopped, or cut off from its server, is replaced after 15 s by default (PostgreSQL 14 and later; one
//!   that is stopped is not on 13), and has ceased to believe in itself long before (5 s). One whose connection closes, as
//!   when it is killed, is replaced at once.
//! - Where the server ends one leader's session while the network keeps that from its process, the next may lead beside
//!   it, for those 5 s at most. What ends all sessions at once, as a restart does, makes no two leaders: the next one's
//!   session must be older than that. A machine whose clocks stand still, as a virtual one that is paused, notices
//!   nothing. Fenced transactions are safe from all of these.
//! - Each candidate has a connection of its own. An engine has a limit for those: on PostgreSQL `fenced_sessions`, 8 unless
//!   set.
//!
//! [`Locks::leader`]: crate::Locks::leader

mod builder;
mod campaign;
mod candidate;
mod incumbent;
mod inside;
mod leading;
mod office;
mod state;
mod transitions;

pub use builder::LeaderBuilder;
pub use candidate::Candidate;
pub use incumbent::{Incumbent, LeaderError};
pub use leading::Leading;
pub use state::LeaderState;
pub use tokio_util::sync::CancellationToken;
pub use transitions::{Transition, Transitions};

#[cfg(test)]
mod tests;
