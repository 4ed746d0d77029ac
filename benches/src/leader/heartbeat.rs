//! The usual elector, for comparison: a row with who leads and until when, renewed each second for three.

use std::{
    io::Write as _,
    time::{Duration, Instant},
};

use latchwork_harness::{Cluster, Signal};
use tokio::time::sleep;
use tokio_postgres::{Client, NoTls};

use super::{HEARTBEAT_TRIALS, trials::start_child};
use crate::Failure;

const TABLE: &str = "CREATE TABLE IF NOT EXISTS lease (id int PRIMARY KEY, holder text, expires timestamptz)";
const RENEW: &str = "INSERT INTO lease VALUES (1, $1, now() + interval '3 s') ON CONFLICT (id) DO UPDATE \
     SET holder = excluded.holder, expires = excluded.expires \
     WHERE lease.holder = excluded.holder OR lease.expires < now()";
const HEARTBEAT: Duration = Duration::from_secs(1);

/// From the kill of a leader's process to the next leader's first work.
pub(super) async fn kills(cluster: &Cluster) -> Result<Vec<Duration>, Failure> {
    let client = connect(&cluster.url()).await?;
    client.batch_execute(TABLE).await?;
    let mut times = Vec::new();
    for trial in 1..=HEARTBEAT_TRIALS {
        eprintln!("       heartbeat, trial {trial} of {HEARTBEAT_TRIALS}");
        let mut leader = start_child("heartbeat", cluster)?;
        leader.wait_for_line("works")?;
        // So that the kill comes at some moment between two heartbeats.
        sleep(HEARTBEAT.mul_f64(fastrand::f64())).await;
        let killed = Instant::now();
        leader.signal(Signal::KILL);
        until_elected(&client, "follower").await?;
        times.push(killed.elapsed());
        leader.wait()?;
        client.batch_execute("DELETE FROM lease").await?;
    }
    Ok(times)
}

/// Leads until the process is killed.
pub(super) async fn lead(url: &str) -> Result<(), Failure> {
    let client = connect(url).await?;
    until_elected(&client, "leader").await?;
    println!("works");
    std::io::stdout().flush()?;
    loop {
        until_elected(&client, "leader").await?;
        sleep(HEARTBEAT).await;
    }
}

async fn connect(url: &str) -> Result<Client, Failure> {
    let (client, connection) = tokio_postgres::connect(url, NoTls).await?;
    tokio::spawn(connection);
    Ok(client)
}

async fn until_elected(client: &Client, name: &str) -> Result<(), Failure> {
    while client.execute(RENEW, &[&name]).await? == 0 {
        sleep(HEARTBEAT).await;
    }
    Ok(())
}
