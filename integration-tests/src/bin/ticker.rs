//! A process that bills for one tick, claim and bill in one transaction, for tests that kill it before COMMIT: it says what
//! the ledger has answered, and when it has stored its bill.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on must fail, helpers included")]

use std::time::{Duration, SystemTime};

use latchwork_core::{Key, once::TickClaim};
use latchwork_postgres::transaction::TickExt as _;
use tokio_postgres::NoTls;

#[tokio::main]
async fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [url, tick, end] = &arguments[..] else {
        panic!("usage: ticker URL TICK (commit | hang), the tick in seconds since 1970");
    };
    let tick = SystemTime::UNIX_EPOCH + Duration::from_secs(tick.parse().unwrap());
    let claim = TickClaim::new(Key::bigint(7), "bill", tick, Duration::from_secs(60));
    let (mut client, connection) = tokio_postgres::connect(url, NoTls).await.unwrap();
    tokio::spawn(connection);
    let transaction = client.transaction().await.unwrap();
    let answer = transaction.claim_tick(&claim).await.unwrap();
    println!("answered {answer:?}");
    let bill = "INSERT INTO bills VALUES ($1)";
    transaction.execute(bill, &[&tick]).await.unwrap();
    println!("billed");
    match end.as_str() {
        "commit" => transaction.commit().await.unwrap(),
        _ => std::future::pending::<()>().await,
    }
    println!("committed");
}
