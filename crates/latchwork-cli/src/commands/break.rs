use std::{
    io::{self, BufRead as _, IsTerminal as _, Write as _},
    time::Duration,
};

use clap::Args;
use latchwork_core::{Key, key::Registry};
use latchwork_postgres::{
    Postgres, StatementError,
    inspect::{Holder, InspectError},
};
use tokio::time::{Instant, sleep};

use crate::{
    connection::ConnectionArgs,
    failure::{Failure, Status, chain},
    name::NameArgs,
    output::{line, printable},
};

/// Ends the sessions of those who hold a lock
///
/// Ends the whole session of each holder, with all that it holds, as pg_terminate_backend does. A holder of latchwork
/// notices at once and stops its work; others may go on without the lock.
#[derive(Debug, Args)]
pub(crate) struct BreakArgs {
    #[command(flatten)]
    name: NameArgs,
    /// Ends the holder of this slot of the pool
    #[arg(long, value_name = "N")]
    slot: Option<u32>,
    /// Does not ask
    #[arg(long, short)]
    yes: bool,
}

impl BreakArgs {
    pub(crate) async fn perform(self, connection: &ConnectionArgs) -> Result<Status, Failure> {
        let key = match self.slot {
            Some(slot) => self.name.key()?.derive("slot", slot),
            None => self.name.key()?,
        };
        let postgres = connection.connect("latchwork break").await?;
        let holders = holders_of(&postgres, key).await?;
        if holders.is_empty() {
            line(&format_args!("nobody holds {}", self.name.shown()))?;
            return Ok(Status::SUCCESS);
        }
        if !self.yes && !self.may(&holders)? {
            line(&"nothing was done")?;
            return Ok(Status::WARNINGS);
        }
        let mut status = Status::SUCCESS;
        for holder in &holders {
            let who = shown(holder);
            let name = self.name.shown();
            if holder.session.is_none() {
                line(&format_args!(
                    "{name} is held by {who}: end it by ROLLBACK PREPARED, see pg_prepared_xacts"
                ))?;
                status = Status::WARNINGS;
            } else if !self.end(&postgres, holder, connection).await? {
                line(&format_args!("{who} holds {name} no more"))?;
            } else if self.has_ended(&postgres, holder).await? {
                line(&format_args!("ended {who}, which held {name}"))?;
            } else {
                line(&format_args!("{who} was told to end, and has not yet; it holds {name}"))?;
                status = Status::WARNINGS;
            }
        }
        Ok(status)
    }

    /// Whether it was there to be ended.
    async fn end(&self, postgres: &Postgres, holder: &Holder, connection: &ConnectionArgs) -> Result<bool, Failure> {
        let error = match postgres.end_holder(holder).await {
            Ok(ended) => return Ok(ended),
            Err(error) if is_forbidden(&error) => error,
            Err(error) => return Err(error.into()),
        };
        let role = connection.config()?.user().unwrap_or("this role").to_owned();
        let owner = holder.session.as_ref().and_then(|session| session.user.as_deref());
        let owner = owner.map_or_else(|| "whose it is".to_owned(), |owner| format!("{owner}, whose it is"));
        Err(Failure::new(
            Status::UNAVAILABLE,
            format!(
                "the server does not let {role} end the session of {}, which holds {}: GRANT pg_signal_backend TO {role}, \
                 or connect as the role {owner}; sessions of superusers end for superusers only: {}",
                shown(holder),
                self.name.shown(),
                chain(&error),
            ),
        ))
    }

    fn may(&self, holders: &[Holder]) -> Result<bool, Failure> {
        let nobody = || Failure::usage("there is nobody to ask; give --yes to end the sessions of the holders");
        if !io::stdin().is_terminal() {
            return Err(nobody());
        }
        let mut question = String::new();
        for holder in holders {
            question += &format!("{} is held {} by {}\n", self.name.shown(), holder.mode, shown(holder));
        }
        question += "End them, with all that they hold? [y/N] ";
        io::stderr().write_all(question.as_bytes()).map_err(|_| nobody())?;
        let mut answer = String::new();
        io::stdin().lock().read_line(&mut answer)?;
        Ok(matches!(answer.trim(), "y" | "Y" | "yes"))
    }

    async fn has_ended(&self, postgres: &Postgres, holder: &Holder) -> Result<bool, Failure> {
        let pid = |holder: &Holder| holder.session.as_ref().map(|session| session.pid);
        let until = Instant::now() + PATIENCE;
        loop {
            let still = holders_of(postgres, holder.key).await?;
            if !still.iter().any(|other| pid(other) == pid(holder)) {
                return Ok(true);
            }
            if Instant::now() > until {
                return Ok(false);
            }
            sleep(LOOK_AGAIN).await;
        }
    }
}

/// Whether the server says that the role has not the right to.
fn is_forbidden(error: &InspectError) -> bool {
    match error {
        InspectError::Statement(StatementError::Server { source }) => {
            source.code().is_some_and(|code| code.code() == INSUFFICIENT_PRIVILEGE)
        }
        _ => false,
    }
}

async fn holders_of(postgres: &Postgres, key: Key) -> Result<Vec<Holder>, Failure> {
    let seen = postgres.inspect(&Registry::new()).await?;
    Ok(seen.holders_of(key).cloned().collect())
}

fn shown(holder: &Holder) -> String {
    match &holder.session {
        None => "a prepared transaction".to_owned(),
        Some(session) => match &session.client {
            Some(host) => format!("{} from {host}", printable(&session.to_string())),
            None => printable(&session.to_string()),
        },
    }
}

const INSUFFICIENT_PRIVILEGE: &str = "42501";
const PATIENCE: Duration = Duration::from_secs(5);
const LOOK_AGAIN: Duration = Duration::from_millis(50);
