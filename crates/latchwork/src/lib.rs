#![doc = include_str!("../README.md")]

pub use latchwork_core::{
    Acquire, AcquireBuilder, AcquireError, CloseError, Guard, HandOverBound, HoldState, Key, Locks, LocksOptions, Lost,
    Mode, Namespace, Permit, ReleaseError, Slots, Stats, TryAcquire, WaitMethod, engine, key, keys, memory, slots,
};
#[cfg(feature = "tower")]
pub use latchwork_http as http;
#[cfg(feature = "postgres")]
pub use latchwork_postgres as postgres;
#[cfg(feature = "postgres")]
pub use latchwork_postgres::{Config, ConnectError, Postgres, PostgresOptions};
#[cfg(feature = "tower")]
pub use latchwork_tower as tower;
