//! Under construction.

pub mod checks;
pub mod config;
pub mod connect;
pub mod tls;
