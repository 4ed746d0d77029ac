#![cfg_attr(
    any(not(doctest), all(feature = "axum", feature = "cron", feature = "deadpool")),
    doc = include_str!("../README.md")
)]

#[cfg(feature = "actix")]
pub use latchwork_actix as actix;
pub use latchwork_core::{
    Acquire, AcquireBuilder, AcquireError, Clock, ClockHand, CloseError, EngineCause, Guard, HandOverBound, HoldState,
    Key, Locks, LocksOptions, Lost, Mode, Moment, Namespace, Permit, ReleaseError, SessionHealth, Slots, Stats,
    TryAcquire, WaitMethod, WallClock, engine, fence, key, keys, leader, memory, migrate, once, rate, shards, slots,
    xact,
};
#[cfg(feature = "diesel")]
pub use latchwork_diesel as diesel;
#[cfg(feature = "diesel-async")]
pub use latchwork_diesel_async as diesel_async;
#[cfg(any(feature = "actix", feature = "tower"))]
pub use latchwork_http as http;
#[cfg(feature = "postgres")]
pub use latchwork_postgres as postgres;
#[cfg(feature = "blocking")]
pub use latchwork_postgres::blocking;
#[cfg(feature = "postgres")]
pub use latchwork_postgres::{Config, ConnectError, Postgres, PostgresOptions, RateOptions, config::ConfigError};
#[cfg(feature = "sea-orm")]
pub use latchwork_sea_orm as sea_orm;
#[cfg(feature = "sqlx")]
pub use latchwork_sqlx as sqlx;
#[cfg(feature = "tower")]
pub use latchwork_tower as tower;
