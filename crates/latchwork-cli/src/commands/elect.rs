use std::{
    convert::Infallible,
    ffi::OsString,
    future::pending,
    rc::Rc,
    sync::Arc,
    time::{Duration, Instant},
};

use clap::Args;
use latchwork_core::{
    AcquireError, Key, Locks,
    leader::{CancellationToken, Candidate, Incumbent, Leading},
};
use serde_json::json;
use tokio::{sync::mpsc, time::sleep};

use crate::{
    args::duration,
    child::Work,
    commands::run::{GraceArgs, STOOD_STILL},
    connection::ConnectionArgs,
    failure::{Failure, Status, chain},
    name::NameArgs,
    output::{self, line, time},
    signals::{Recipient, Signals},
};

/// Runs a command while this process leads, or tells who does
///
/// Of all that campaign under a name, one leads at a time, and runs its command with LATCHWORK_NAME, LATCHWORK_KEY and
/// LATCHWORK_TERM in its environment: the term is a number that grows with each leader.
///
/// When the leadership is lost the command gets SIGTERM, after --grace SIGKILL, and runs again once this process leads
/// again. When it ends by itself, so does this process, with its status; also when it ends after a HUP, INT, QUIT or TERM that
/// this process has passed on to it.
#[derive(Debug, Args)]
pub(crate) struct ElectArgs {
    #[command(flatten)]
    name: NameArgs,
    /// Does not campaign: tells who leads, now and at each change
    #[arg(long, conflicts_with_all = ["command", "grace", "delay"])]
    observe: bool,
    /// With --observe, tells it once
    #[arg(long, requires = "observe")]
    once: bool,
    /// With --observe, tells it in JSON, a line each. Who has the lock and does not lead yet, since transactions of the last
    /// leader still run, has null for "since" and "term"
    #[arg(long, requires = "observe")]
    json: bool,
    /// Leaves the leadership to others for so long each time that it is vacant
    #[arg(long, value_name = "DUR", value_parser = duration)]
    delay: Option<Duration>,
    #[command(flatten)]
    grace: GraceArgs,
    /// Does not tell of elections, losses and campaigns that fail
    #[arg(long, short)]
    quiet: bool,
    /// The command, and its arguments
    // Who gives one of the others lacks --observe, and no command.
    #[arg(last = true, required_unless_present_any = ["observe", "once", "json"], value_name = "CMD")]
    command: Vec<OsString>,
}

impl ElectArgs {
    pub(crate) async fn perform(self, connection: &ConnectionArgs) -> Result<Status, Failure> {
        let key = self.name.key()?;
        if self.observe {
            let locks = connection.connect("latchwork elect --observe").await?.locks();
            return self.observe(&locks, key).await;
        }
        let mut signals = Signals::take()?;
        let recipient = signals.recipient();
        let work = Work {
            command: self.command.clone(),
            grace: self.grace.grace,
        };
        let led = async {
            let locks = connection.connect(&work.program()).await?.locks();
            let leader = locks.leader(key);
            let candidate = leader.with_campaign_delay(self.delay.unwrap_or_default()).campaign()?;
            let (last, mut last_ended) = mpsc::channel(1);
            let led = tokio::select! {
                biased;
                led = candidate.run(|leading, cancel| self.lead(&work, &candidate, leading, cancel, &recipient, &last)) => led,
                led = last_ended.recv() => led,
                never = self.tell_failures(&candidate, key) => match never {},
            };
            candidate.shutdown().await;
            led.unwrap_or_else(|| Err(Failure::new(Status::UNAVAILABLE, "the campaign has ended")))
        };
        tokio::select! {
            biased;
            led = led => led.map_err(|failure| self.name.name_failure(failure, key)),
            // Dropped, the candidate resigns; there is nothing to wait for that the end of the connection does not do.
            signal = signals.pass_on() => Ok(Status::of_signal(signal.as_raw())),
        }
    }

    /// Runs the command for as long as this process leads.
    async fn lead(
        &self,
        work: &Work,
        candidate: &Candidate,
        leading: Leading,
        cancel: CancellationToken,
        signals: &Rc<Recipient>,
        last: &mpsc::Sender<Result<Status, Failure>>,
    ) -> Result<Status, Failure> {
        let ended = self.work(work, candidate, leading, cancel, signals).await;
        if signals.was_told_to_end() {
            // Not as the value of this work: after a loss that would count for nothing, and the command would run again.
            let _ = last.try_send(ended);
            return pending().await;
        }
        ended
    }

    async fn work(
        &self,
        work: &Work,
        candidate: &Candidate,
        leading: Leading,
        cancel: CancellationToken,
        signals: &Rc<Recipient>,
    ) -> Result<Status, Failure> {
        let (name, term) = (self.name.shown(), leading.term());
        self.tell(&format!("leads {name} in term {term}"));
        let mut environment = self.name.environment(leading.fence().key());
        environment.push(("LATCHWORK_TERM", term.to_string()));
        let mut running = work.start(&environment, signals)?;
        tokio::select! {
            biased;
            status = running.ended() => {
                if running.was_given_up() {
                    self.tell(STOOD_STILL);
                    // By the call itself: so the command runs again once this process leads again.
                    drop(candidate.resign());
                }
                status
            }
            () = cancel.cancelled() => {
                self.tell(&format!("leads {name} no more; the command is told to end"));
                running.stop().await
            }
        }
    }

    /// Tells why campaigns fail, each reason once, and when they do no more.
    async fn tell_failures(&self, candidate: &Candidate, key: Key) -> Infallible {
        let mut told: Vec<String> = Vec::new();
        let mut last: Option<(Arc<AcquireError>, Instant)> = None;
        loop {
            sleep(LOOK_INTERVAL).await;
            let Some(failure) = candidate.failure() else {
                // It has led since, and that was told.
                told.clear();
                continue;
            };
            let is_last = |last: &&(Arc<AcquireError>, Instant)| Arc::ptr_eq(&last.0, &failure);
            if let Some((_, seen)) = last.as_ref().filter(is_last) {
                // A campaign that comes through as far as the queue says nothing: it fails no more, and the server answers.
                if !told.is_empty() && seen.elapsed() > SETTLED && candidate.leader().await.is_ok() {
                    self.tell(&format!("campaigns for {} again", self.name.shown()));
                    told.clear();
                }
                continue;
            }
            let news = self.name.name_in(&chain(&*failure), key);
            last = Some((failure, Instant::now()));
            if !told.contains(&news) {
                self.tell(&news);
                told.push(news);
            }
        }
    }

    fn tell(&self, news: &str) {
        if !self.quiet {
            output::news(&news);
        }
    }

    async fn observe(&self, locks: &Locks, key: Key) -> Result<Status, Failure> {
        let candidate = locks.leader(key).ineligible().campaign()?;
        let mut last = None;
        loop {
            match candidate.leader().await {
                Ok(leader) => {
                    if last.as_ref() != Some(&leader) {
                        self.show(leader.as_ref())?;
                        last = Some(leader);
                    }
                }
                Err(error) if self.once => return Err(Failure::of(Status::UNAVAILABLE, &error)),
                Err(error) => {
                    // Told anew when it is known again, whoever it is.
                    if last.take().is_some() {
                        self.tell(&chain(&error));
                    }
                }
            }
            if self.once {
                return Ok(Status::SUCCESS);
            }
            sleep(LOOK_INTERVAL).await;
        }
    }

    fn show(&self, leader: Option<&Incumbent>) -> Result<(), Failure> {
        let name = self.name.shown();
        if self.json {
            return line(&json!({
                "name": name,
                "leader": leader.map(|leader| &leader.identity),
                "host": leader.and_then(|leader| leader.host.as_ref()),
                "since": leader.and_then(|leader| leader.since).map(time),
                "term": leader.and_then(|leader| leader.term).map(|term| term.to_string()),
            }));
        }
        let Some(leader) = leader else {
            return line(&format_args!("nobody leads {name}"));
        };
        let is_leading = leader.term.is_some();
        let does = if is_leading { "leads" } else { "has the lock of" };
        let mut text = format!("{} {does} {name}", leader.identity);
        if let Some(host) = &leader.host {
            text += &format!(" from {host}");
        }
        if let Some(since) = leader.since {
            text += &format!(" since {}", time(since));
        }
        if let Some(term) = leader.term {
            text += &format!(" in term {term}");
        }
        if !is_leading {
            // Transactions of the last leader still run, or it does not campaign at all, as `run` does not.
            text += ", and does not lead yet";
        }
        line(&text)
    }
}

/// How often it is looked who leads, and whether campaigns fail.
const LOOK_INTERVAL: Duration = Duration::from_secs(1);
/// Longer than a campaign that has failed waits before the next.
const SETTLED: Duration = Duration::from_secs(6);
