use std::{
    env,
    process::Command,
    time::{Duration, Instant},
};

use latchwork_core::{Locks, leader::Candidate};
use latchwork_harness::{Cluster, Process, Signal};
use latchwork_postgres::Postgres;
use tokio::{
    sync::mpsc,
    time::{sleep, timeout},
};
use tokio_postgres::{Client, NoTls};

use super::{CHILD, NAME, TRIALS, connect};
use crate::Failure;

/// How long a leader is waited for.
const LIMIT: Duration = Duration::from_secs(60);

/// From the kill of a leader's process to the next leader's first work, with so many followers.
pub(super) async fn kills(cluster: &Cluster, followers: usize) -> Result<Vec<Duration>, Failure> {
    let party = Party::gather(cluster, followers).await?;
    let mut times = Vec::new();
    for trial in 1..=TRIALS {
        eprintln!("       {followers} followers, trial {trial} of {TRIALS}");
        let mut leader = start_child("latchwork", cluster)?;
        leader.wait_for_line("works ")?;
        let mut followers = party.follow().await?;
        let killed = Instant::now();
        leader.signal(Signal::KILL);
        times.push(followers.first_work().await?.duration_since(killed));
        leader.wait()?;
        followers.leave().await;
    }
    Ok(times)
}

/// From the call of `resign` to the next leader's first work.
pub(super) async fn resignations(cluster: &Cluster, followers: usize) -> Result<Vec<Duration>, Failure> {
    let party = Party::gather(cluster, followers).await?;
    let leads = connect(&cluster.url()).await?;
    let mut times = Vec::new();
    for trial in 1..=TRIALS {
        eprintln!("       resignation {trial} of {TRIALS}");
        let leader = leads.locks().leader(NAME).campaign()?;
        timeout(LIMIT, leader.watch().wait_for(|state| state.term().is_some())).await??;
        let mut followers = party.follow().await?;
        let resigned = Instant::now();
        leader.shutdown().await;
        times.push(followers.first_work().await?.duration_since(resigned));
        followers.leave().await;
    }
    Ok(times)
}

pub(super) fn start_child(kind: &str, cluster: &Cluster) -> Result<Process, Failure> {
    let mut command = Command::new(env::current_exe()?);
    Ok(Process::spawn(command.args([CHILD, kind, &cluster.url()]))?)
}

/// Processes that could lead, as far as the server can tell: each has connections of its own.
struct Party {
    members: Vec<Postgres>,
    onlooker: Client,
}

impl Party {
    async fn gather(cluster: &Cluster, members: usize) -> Result<Self, Failure> {
        let (onlooker, connection) = tokio_postgres::connect(&cluster.url(), NoTls).await?;
        tokio::spawn(connection);
        let mut party = Self {
            members: Vec::new(),
            onlooker,
        };
        for _ in 0..members {
            party.members.push(connect(&cluster.url()).await?);
        }
        Ok(party)
    }

    /// All campaign, and queue in the server.
    async fn follow(&self) -> Result<Followers, Failure> {
        let (works, first) = mpsc::unbounded_channel();
        let mut candidates = Vec::new();
        for member in &self.members {
            let candidate = campaign(&member.locks())?;
            tokio::spawn({
                let (candidate, works) = (candidate.clone(), works.clone());
                async move {
                    let work = |_, cancel: latchwork_core::leader::CancellationToken| {
                        // Whoever measures has seen enough by then.
                        let _ = works.send(Instant::now());
                        async move { cancel.cancelled().await }
                    };
                    candidate.run(work).await;
                }
            });
            candidates.push(candidate);
        }
        let queued = "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted";
        let members = i64::try_from(self.members.len())?;
        while self.onlooker.query_one(queued, &[]).await?.get::<_, i64>(0) < members {
            sleep(Duration::from_millis(20)).await;
        }
        Ok(Followers { candidates, first })
    }
}

fn campaign(locks: &Locks) -> Result<Candidate, Failure> {
    Ok(locks.leader(NAME).campaign()?)
}

struct Followers {
    candidates: Vec<Candidate>,
    first: mpsc::UnboundedReceiver<Instant>,
}

impl Followers {
    async fn first_work(&mut self) -> Result<Instant, Failure> {
        let first = timeout(LIMIT, self.first.recv()).await?;
        first.ok_or_else(|| "nobody leads".into())
    }

    async fn leave(self) {
        // Those who do not lead go first, so that nobody else does for a moment.
        let (leads, follows): (Vec<_>, Vec<_>) = self.candidates.into_iter().partition(Candidate::is_leader);
        for candidate in follows.into_iter().chain(leads) {
            candidate.shutdown().await;
        }
    }
}
