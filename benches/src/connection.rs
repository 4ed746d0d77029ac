use tokio_postgres::{Client, NoTls};

use crate::Failure;

/// A plain client; a task of its own carries its bytes, as tokio-postgres recommends.
pub(crate) async fn connect(url: &str) -> Result<Client, Failure> {
    let (client, connection) = tokio_postgres::connect(url, NoTls).await?;
    tokio::spawn(async move {
        if let Err(error) = connection.await {
            eprintln!("a connection has ended: {error}");
        }
    });
    Ok(client)
}
