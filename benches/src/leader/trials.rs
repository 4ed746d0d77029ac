use std::{
    env,
    io::Write as _,
    process::{Command, Stdio},
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
const LOOK_AGAIN: Duration = Duration::from_millis(5);

/// From the kill of a leader's process to the next leader's first work, with so many followers.
pub(super) async fn kills(cluster: &Cluster, followers: usize) -> Result<Vec<Duration>, Failure> {
    // All at first: a leader needs a session that is some seconds old.
    let leaders: Result<Vec<_>, _> = (0..TRIALS).map(|_| start_child("latchwork", cluster)).collect();
    let party = Party::gather(cluster, followers).await?;
    let mut times = Vec::new();
    for (trial, mut leader) in (1..).zip(leaders?) {
        eprintln!("       {followers} followers, trial {trial} of {TRIALS}");
        leader.wait_for_line("ready")?;
        campaign_now(&mut leader)?;
        leader.wait_for_line("works ")?;
        let mut followers = party.follow().await?;
        let killed = Instant::now();
        leader.signal(Signal::KILL);
        times.push(followers.first_work().await?.duration_since(killed));
        leader.wait()?;
        party.leave(followers).await?;
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
        party.leave(followers).await?;
    }
    Ok(times)
}

pub(super) fn start_child(kind: &str, cluster: &Cluster) -> Result<Process, Failure> {
    let mut command = Command::new(env::current_exe()?);
    command.args([CHILD, kind, &cluster.url()]).stdin(Stdio::piped());
    Ok(Process::spawn(&mut command)?)
}

/// Tells a child that is ready to campaign.
fn campaign_now(child: &mut Process) -> Result<(), Failure> {
    let input = child.child_mut().stdin.take();
    Ok(writeln!(input.ok_or("it was told before")?)?)
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
        while self.queued().await? < self.members.len() {
            sleep(LOOK_AGAIN).await;
        }
        Ok(Followers { candidates, first })
    }

    /// All leave, and queue no more: else they would campaign again on other sessions, of which none is old enough.
    async fn leave(&self, followers: Followers) -> Result<(), Failure> {
        // Those who do not lead go first, so that nobody else does for a moment.
        let (leads, follows): (Vec<_>, Vec<_>) = followers.candidates.into_iter().partition(Candidate::is_leader);
        for candidates in [follows, leads] {
            // Each leaves by the call itself: all do at once, and are waited for then.
            let leave: Vec<_> = candidates.iter().map(Candidate::shutdown).collect();
            for left in leave {
                left.await;
            }
        }
        while self.queued().await? > 0 {
            sleep(LOOK_AGAIN).await;
        }
        Ok(())
    }

    async fn queued(&self) -> Result<usize, Failure> {
        let queued = "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted";
        let queued: i64 = self.onlooker.query_one(queued, &[]).await?.get(0);
        Ok(usize::try_from(queued)?)
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
}
