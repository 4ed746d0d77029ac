//! The libraries, one file each.

mod deadpool;
mod diesel;
mod diesel_async;
mod schema;
mod sea_orm;
mod sqlx;

pub(crate) use self::{deadpool::Deadpool, diesel::Diesel, diesel_async::DieselAsync, sea_orm::SeaOrm, sqlx::Sqlx};

/// The statements of those who write SQL.
const SELECT: &str = "SELECT stock FROM items WHERE id = $1";
const SELECT_FOR_UPDATE: &str = "SELECT stock FROM items WHERE id = $1 FOR UPDATE";
const UPDATE: &str = "UPDATE items SET stock = $2 WHERE id = $1";
