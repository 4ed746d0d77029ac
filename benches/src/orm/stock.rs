use tokio_postgres::Client;

use crate::{Failure, connection::connect};

/// The table that everybody works on, as the server has it.
pub(crate) struct Stock(Client);

impl Stock {
    /// Makes the table with rows 1 to `rows`, each on a page of its own.
    pub(crate) async fn create(url: &str, rows: i64) -> Result<(), Failure> {
        let create = format!(
            "CREATE TABLE items (id bigint PRIMARY KEY, stock bigint NOT NULL, note text NOT NULL) WITH (fillfactor = 10); \
             INSERT INTO items SELECT id, 0, repeat('.', 500) FROM generate_series(1, {rows}) AS id"
        );
        Ok(connect(url).await?.batch_execute(&create).await?)
    }

    pub(crate) async fn connect(url: &str) -> Result<Self, Failure> {
        Ok(Self(connect(url).await?))
    }

    /// How many were taken from it, if no update was lost.
    pub(crate) async fn taken(&self) -> Result<i64, Failure> {
        let sum = "SELECT -sum(stock)::bigint FROM items";
        Ok(self.0.query_one(sum, &[]).await?.get(0))
    }
}
