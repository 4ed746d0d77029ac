//! The tables of the shop, and those of latchwork that it needs.

use std::time::Duration;

use deadpool_postgres::Pool;
use latchwork::{
    Namespace,
    postgres::{schema, transaction::XactLockExt},
};

use crate::failure::Failure;

/// Makes the tables that are not there yet. A real service leaves that to its migrations: `schema::sql()` is for them.
pub(crate) async fn make(pool: &Pool) -> Result<(), Failure> {
    let mut client = pool.get().await?;
    schema::install(&client).await?;
    // Of several CREATE TABLE IF NOT EXISTS at the same time one can fail; so one instance after the other.
    let transaction = client.transaction().await?;
    let tables = Namespace::new("shop")?.key("tables")?;
    transaction.xact_lock(tables).within(PATIENCE).await?;
    transaction.batch_execute(TABLES).await?;
    Ok(transaction.commit().await?)
}

const PATIENCE: Duration = Duration::from_secs(30);

const TABLES: &str = "
    CREATE SCHEMA IF NOT EXISTS shop;
    CREATE TABLE IF NOT EXISTS shop.orders (
        id text PRIMARY KEY,
        total bigint NOT NULL
    );
    CREATE TABLE IF NOT EXISTS shop.payments (
        id bigint PRIMARY KEY GENERATED ALWAYS AS IDENTITY,
        amount bigint NOT NULL
    );
    -- The calls that are being answered right now, and one row: the most that there ever were at once.
    CREATE TABLE IF NOT EXISTS shop.ai_calls (
        id bigint PRIMARY KEY GENERATED ALWAYS AS IDENTITY,
        instance text NOT NULL,
        began timestamptz NOT NULL DEFAULT clock_timestamp()
    );
    CREATE TABLE IF NOT EXISTS shop.ai_most (
        only_row boolean PRIMARY KEY DEFAULT true CHECK (only_row),
        calls bigint NOT NULL
    );
    INSERT INTO shop.ai_most (calls) VALUES (0) ON CONFLICT DO NOTHING;
";
