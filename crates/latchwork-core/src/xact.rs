//! Transaction scope, for every PostgreSQL library: the lock is in the caller's own transaction and ends with it.
//!
//! Text in and text out, with no driver: [`XactWait`] says which statement comes next, the adapter of a library sends it
//! on the caller's transaction, and hands back the one text that the server answers with. So a lock means the same
//! whichever library takes it, and each of them excludes all the others.
//!
//! # What to know
//!
//! - A lock that is taken under a savepoint is given up when that savepoint is rolled back to.
//! - The work must come after the lock, in READ COMMITTED. In REPEATABLE READ and SERIALIZABLE the snapshot is older
//!   than the grant, so that the work would read what was before the last holder's commit; that is refused unless
//!   [`XactRequest::allow_stale_snapshot`] says otherwise.
//! - Several keys are taken together, in one order that is the same for everybody, or none of them. Two transactions that
//!   take keys one after the other in another order run into a deadlock, which PostgreSQL ends for one of them.
//! - On a hot standby the lock is refused, since there it would exclude nobody elsewhere.
//!
//! # Examples
//!
//! What an adapter does, here with a server that has the key free:
//!
//! ```
//! use std::time::Duration;
//! use latchwork_core::{Key, xact::{XactRequest, XactWait}};
//!
//! # fn send(statement: &str) -> String { assert!(statement.contains("pg_try_advisory_xact_lock")); "granted".into() }
//! let request = XactRequest::new(Key::bigint(42));
//! let mut wait = XactWait::within(request, Some(Duration::from_secs(2)));
//! while let Some(statement) = wait.next()? {
//!     let answer = send(&statement.joined());
//!     wait.answered(&answer)?;
//! }
//! assert!(wait.is_granted());
//! # Ok::<(), latchwork_core::xact::XactLockError>(())
//! ```

mod body;
mod error;
mod keys;
mod locked;
mod request;
mod retry;
mod server_side;
mod sql;
mod statement;
mod wait;

pub use body::TransactionBody;
pub use error::XactLockError;
pub use keys::KeySet;
pub use locked::{LockedError, XactOptions};
pub use request::{FencedLimits, XactRequest};
pub use retry::pause_after;
pub use server_side::ServerSide;
pub use statement::XactStatement;
pub use wait::XactWait;

/// What a driver or the server says.
pub(crate) type Cause = Box<dyn std::error::Error + Send + Sync>;
