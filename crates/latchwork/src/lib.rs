#![cfg_attr(
    any(not(doctest), all(feature = "axum", feature = "deadpool")),
    doc = include_str!("../README.md")
)]

pub use latchwork_core::{
    Acquire, AcquireBuilder, AcquireError, Clock, ClockHand, CloseError, EngineCause, Guard, HandOverBound, HoldState,
    Key, Locks, LocksOptions, Lost, Mode, Moment, Namespace, Permit, ReleaseError, SessionHealth, Slots, Stats,
    TryAcquire, WaitMethod, engine, key, keys, memory, rate, slots,
};
#[cfg(feature = "tower")]
pub use latchwork_http as http;
#[cfg(feature = "postgres")]
pub use latchwork_postgres as postgres;
#[cfg(feature = "postgres")]
pub use latchwork_postgres::{Config, ConnectError, Postgres, PostgresOptions, config::ConfigError};
#[cfg(feature = "tower")]
pub use latchwork_tower as tower;
