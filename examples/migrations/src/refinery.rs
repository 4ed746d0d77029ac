//! refinery, which runs every migration in a transaction, so there is no CREATE INDEX CONCURRENTLY in them.

use latchwork::Locks;
use tokio_postgres::NoTls;

use crate::{Failure, LOCK, PATIENCE};

mod embedded {
    refinery::embed_migrations!("migrations/refinery");
}

pub(crate) async fn migrate(locks: Locks, url: &str) -> Result<(), Failure> {
    let (mut client, connection) = tokio_postgres::connect(url, NoTls).await?;
    tokio::spawn(connection);
    let runner = embedded::migrations::runner();
    locks.migrate(LOCK, PATIENCE, runner.run_async(&mut client)).await?;
    Ok(())
}
