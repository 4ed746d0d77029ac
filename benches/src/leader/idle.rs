//! What a follower costs the server while nothing happens.

use std::time::Duration;

use latchwork_harness::{Cluster, Proxy};
use tokio::time::sleep;

use super::{NAME, connect};
use crate::Failure;

/// How long is counted: several slices of a wait.
const LENGTH: Duration = Duration::from_secs(30);
/// For the first grant or wait on a new session, which needs some age.
const AGE: Duration = Duration::from_secs(7);

/// The round trips a second of a process that follows, without those of one that does nothing.
pub(super) async fn queries_per_second(cluster: &Cluster) -> Result<f64, Failure> {
    let leads = connect(&cluster.url()).await?;
    let leader = leads.locks().leader(NAME).campaign()?;
    leader.watch().wait_for(|state| state.term().is_some()).await?;
    let (idle, following) = (Proxy::start(cluster.endpoint())?, Proxy::start(cluster.endpoint())?);
    let (nothing, follows) = (connect(&idle.url()).await?, connect(&following.url()).await?);
    let follower = follows.locks().leader(NAME).campaign()?;
    eprintln!("       a follower, for {} s", (AGE + LENGTH).as_secs());
    sleep(AGE).await;
    let trips = || (idle.round_trips(), following.round_trips());
    let before = trips();
    sleep(LENGTH).await;
    let after = trips();
    let own = (after.1 - before.1) as f64 / LENGTH.as_secs_f64();
    let pings = (after.0 - before.0) as f64 / LENGTH.as_secs_f64();
    println!("a process asks {own:.2} times a second while it follows, {pings:.2} while it does nothing");
    follower.shutdown().await;
    leader.shutdown().await;
    nothing.locks().close().await;
    Ok((own - pings).max(0.0))
}
