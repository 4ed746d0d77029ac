//! What the gate wants done, and what it says to one who enters.

use crate::{
    engine::{Attempt, EngineError, Grant},
    key::Key,
    mode::Mode,
};

/// Something for the shell to do once the gate's mutex is free. `W` is the way to one who waits.
#[derive(Debug)]
pub(crate) enum Action<W> {
    /// Ask the engine for the key, and report when it has a request to wait.
    Acquire {
        key: Key,
        mode: Mode,
        attempt: Attempt,
        flight: u64,
    },
    /// Tell the engine that nobody wants this flight any more.
    Abandon { key: Key, flight: u64 },
    /// Give the key back to the engine, and report when it has the request; with `settle`, only when it has answered.
    Release {
        key: Key,
        mode: Mode,
        grant: Grant,
        turn: u64,
        settle: bool,
    },
    /// Hand the key to one who waits; if he has gone, release it again.
    Give { to: W, key: Key, grant: Grant, turn: u64 },
    /// Tell one who tried that the key is not free.
    Deny { to: W },
    /// Tell one who waits that the engine failed.
    Fail { to: W, error: EngineError },
    /// Nothing: this action was carried out.
    Done,
}

/// What became of one who entered.
#[derive(Debug)]
pub(crate) enum Entered {
    /// Joined a shared hold.
    Joined { grant: Grant, turn: u64 },
    /// Tried, and the key is not free.
    Denied,
    /// The hold that stands in the way can't be judged at the moment.
    Failed(EngineError),
    /// Waits; the ticket is for [`super::Table::leave`].
    Queued { ticket: u64 },
}
