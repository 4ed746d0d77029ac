//! Shows, and checks, what the locks promise.

mod death;
mod order;
mod slots;
mod state;

use std::future::Future;
use std::time::{Duration, Instant};

use tokio::task::{JoinHandle, JoinSet};

use crate::account::Account;
use crate::checks::{self, LOCK_BUSY};
use crate::client::{Client, Reply};
use crate::failure::Failure;
use crate::instance::Instance;
use crate::pair::Pair;

/// How soon what a dead or departed holder held is promised to be free.
const FREE_AGAIN: Duration = Duration::from_secs(1);

/// Tells what happens when requests come to both instances; `true` if every promise held.
pub(crate) async fn tour(pair: &mut Pair) -> Result<bool, Failure> {
    let (client, mut account) = (Client::new(), Account::new());
    if let Some(notice) = pair.database.notice() {
        account.say(&notice);
    }
    account.say(&format!(
        "Two instances of one service share {}:",
        pair.database.description()
    ));
    for instance in &pair.instances {
        account.tell(&instance.description());
    }
    let [a, b] = &mut pair.instances;
    order::show(&client, a, b, &mut account).await?;
    state::show(&client, a, b, &mut account).await?;
    slots::show(&client, a, b, &mut account).await?;
    death::show(&client, a, b, &mut account).await?;
    Ok(account.close())
}

/// Sends a crowd of requests whose work takes long enough for all to meet.
///
/// If the first are done before the last have come, nobody is refused and nothing is shown: then again with longer work.
async fn crowd<F>(
    account: &Account,
    request: impl Fn(usize, u64) -> F,
    number: usize,
    met: impl Fn(&[Reply]) -> bool,
) -> Result<Vec<Reply>, Failure>
where
    F: Future<Output = Result<Reply, Failure>> + Send + 'static,
{
    let mut replies = Vec::new();
    for (attempt, ms) in WORK_MS.into_iter().enumerate() {
        if attempt > 0 {
            account.tell(&format!(
                "the first were done before the last had come: again, with {ms} ms of work"
            ));
        }
        let sent: JoinSet<_> = (0..number).map(|number| request(number, ms)).collect();
        replies = sent.join_all().await.into_iter().collect::<Result<_, _>>()?;
        if met(&replies) {
            break;
        }
    }
    Ok(replies)
}

/// A request that keeps an order; dropped, its client leaves.
struct Hold(JoinHandle<Result<Reply, Failure>>);

impl Hold {
    /// Has `holder` charge the order for minutes, and returns when `other` was told that it is in use.
    async fn begin(
        client: &Client,
        holder: &Instance,
        other: &Instance,
        order: &str,
    ) -> Result<(Self, Reply), Failure> {
        let deadline = Instant::now() + PATIENCE;
        while Instant::now() < deadline {
            let mut hold = Self(tokio::spawn(client.charge(holder, order, MINUTES_MS)));
            while !hold.0.is_finished() && Instant::now() < deadline {
                let reply = client.charge(other, order, 0).await?;
                if reply.status == LOCK_BUSY.status {
                    return Ok((hold, reply));
                }
                checks::is_let_in(&reply).map_err(Failure::new)?;
                tokio::time::sleep(PAUSE).await;
            }
            if !hold.0.is_finished() {
                break;
            }
            // One of our questions was in its way, so it starts again.
            let reply = (&mut hold.0).await??;
            checks::is_refusal(&reply, LOCK_BUSY).map_err(Failure::new)?;
        }
        let (holder, other) = (holder.name(), other.name());
        Err(Failure::new(format!(
            "{holder} was to keep order {order}, and {other} was not kept out of it within {PATIENCE:?}"
        )))
    }
}

impl Drop for Hold {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// Asks an instance for an order until it is let in, and says how long after `since` that was.
async fn until_let_in(client: &Client, instance: &Instance, order: &str, since: Instant) -> Result<Duration, Failure> {
    loop {
        let reply = client.charge(instance, order, 0).await?;
        if reply.status == 200 {
            return Ok(since.elapsed());
        }
        checks::is_refusal(&reply, LOCK_BUSY).map_err(Failure::new)?;
        if since.elapsed() > PATIENCE {
            return Err(Failure::new(format!(
                "order {order} is still in use after {PATIENCE:?}"
            )));
        }
        tokio::time::sleep(PAUSE).await;
    }
}

fn soon(taken: Duration) -> Result<(), String> {
    if taken < FREE_AGAIN {
        Ok(())
    } else {
        Err(format!("it took {taken:?}"))
    }
}

/// Longer than any part of the tour.
const MINUTES_MS: u64 = 600_000;
/// How long to look for what is promised to come sooner.
const PATIENCE: Duration = Duration::from_secs(20);
/// Between two questions.
const PAUSE: Duration = Duration::from_millis(2);
/// What handlers take in a crowd: the longer times are for machines that are too slow for the shorter.
const WORK_MS: [u64; 3] = [300, 1_500, 7_500];
