//! The contenders, one file each.

mod ceiling;
#[cfg(feature = "peers")]
mod distributed_lock;
mod ours;
mod pipelined;
mod pool;
mod redis;
#[cfg(feature = "peers")]
mod sqlx;

pub(crate) use self::{
    ceiling::Ceiling,
    ours::{Ours, Release},
    pipelined::Pipelined,
    pool::Pooled,
    redis::Redis,
};
#[cfg(feature = "peers")]
pub(crate) use self::{distributed_lock::DistributedLock, sqlx::Sqlx};

/// The statements of the peers that have none of their own.
const TRY: &str = "SELECT pg_catalog.pg_try_advisory_lock($1)";
const UNLOCK: &str = "SELECT pg_catalog.pg_advisory_unlock($1)";
